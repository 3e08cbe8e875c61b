#include "tensord/server/device/cuda/kernels/strided_loop.h"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

namespace tensord::server::cuda {
namespace {

TEST(DividerTest, DividesLikeDivision) {
  const uint32_t top = (uint32_t{1} << 31) - 1;
  for (uint32_t divisor : {1u, 2u, 3u, 5u, 7u, 10u, 64u, 641u, 65535u, 65537u, 1u << 30, top}) {
    const Divider divider(divisor, /*narrow=*/true);
    for (uint32_t n : {0u, 1u, divisor - 1, divisor, divisor * 2 - 1, 12345u, 1u << 30, top}) {
      n &= top;
      EXPECT_EQ(divider.DivideNarrow(n), n / divisor) << n << " / " << divisor;
    }
  }
}

TEST(DividerTest, DividesWideNumbers) {
  constexpr int64_t kTop = std::numeric_limits<int64_t>::max();
  for (int64_t divisor : {int64_t{1}, int64_t{2}, int64_t{3}, int64_t{7}, int64_t{641},
                          int64_t{65537}, (int64_t{1} << 32) - 1, (int64_t{1} << 32) + 1,
                          int64_t{1} << 62, (int64_t{1} << 62) + 1, kTop - 1, kTop}) {
    const Divider divider(divisor, /*narrow=*/false);
    for (int64_t quotient : {int64_t{0}, int64_t{1}, kTop / divisor / 3, kTop / divisor}) {
      // The first, the second and the last number with this quotient.
      for (int64_t rest : {int64_t{0}, int64_t{1}, divisor - 1}) {
        const int64_t n = rest > kTop - quotient * divisor ? kTop : quotient * divisor + rest;
        EXPECT_EQ(divider.DivideWide(static_cast<uint64_t>(n)), static_cast<uint64_t>(n / divisor))
            << n << " / " << divisor;
      }
    }
  }
}

// Returns the offsets of all indices, in order.
std::vector<int64_t> AllOffsets(const StridedLoop<1>& loop) {
  std::vector<int64_t> offsets;
  for (int64_t i = 0; i < loop.size; ++i) {
    int64_t offset[1];
    loop.Offsets(i, offset);
    offsets.push_back(offset[0]);
  }
  return offsets;
}

TEST(StridedLoopTest, WalksATransposedMatrix) {
  const int64_t extent[] = {3, 2}, stride[] = {1, 3};
  const auto loop = MakeStridedLoop<1>(2, extent, {stride});
  EXPECT_EQ(AllOffsets(loop), (std::vector<int64_t>{0, 3, 1, 4, 2, 5}));
}

TEST(StridedLoopTest, MergesContiguousAxesAndDropsAxesOfOne) {
  const int64_t extent[] = {2, 1, 3, 4}, stride[] = {12, 77, 4, 1};
  const auto loop = MakeStridedLoop<1>(4, extent, {stride});
  EXPECT_EQ(loop.rank, 1);
  EXPECT_EQ(loop.extent[0], 24);
  EXPECT_EQ(loop.stride[0][0], 1);
}

TEST(StridedLoopTest, MergesOnlyWhereEveryOperandAgrees) {
  const int64_t extent[] = {2, 3}, dense[] = {3, 1}, row[] = {0, 1};
  EXPECT_EQ(MakeStridedLoop<2>(2, extent, {dense, dense}).rank, 1);
  EXPECT_EQ(MakeStridedLoop<2>(2, extent, {dense, row}).rank, 2);
}

TEST(StridedLoopTest, ScalarHasOneElement) {
  const auto loop = MakeStridedLoop<1>(0, nullptr, {nullptr});
  EXPECT_EQ(AllOffsets(loop), std::vector<int64_t>{0});
}

TEST(StridedLoopTest, CountsPast31Bits) {
  const int64_t extent[] = {int64_t{1} << 20, 3, int64_t{1} << 20};
  const int64_t stride[] = {1, 0, int64_t{1} << 20};
  const auto loop = MakeStridedLoop<1>(3, extent, {stride});
  EXPECT_FALSE(loop.narrow);
  int64_t offset[1];
  loop.Offsets(loop.size - 1, offset);
  EXPECT_EQ(offset[0], (int64_t{1} << 40) - 1);
}

}  // namespace
}  // namespace tensord::server::cuda
