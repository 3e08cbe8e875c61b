#include "tensord/client/tour/plan.h"

#include <gtest/gtest.h>

namespace tensord::tour {
namespace {

constexpr int64_t kPlenty = int64_t{1} << 40;

TEST(Plan, MatrixSizeFollowsTheDevicesSpeed) {
  const absl::Duration wanted = absl::Milliseconds(400);
  EXPECT_EQ(MatmulSide(1e6, wanted, kPlenty), 512) << "never below";
  EXPECT_EQ(MatmulSide(100e9, wanted, kPlenty), 2048);
  EXPECT_EQ(MatmulSide(1e12, wanted, kPlenty), 4096);
  EXPECT_EQ(MatmulSide(1e15, wanted, kPlenty), 8192) << "never above";
}

TEST(Plan, MatrixSizeFitsTheDevicesMemory) {
  const int64_t limit = int64_t{256} << 20;
  EXPECT_EQ(MatmulSide(1e15, absl::Seconds(1), limit), 2048);
  EXPECT_EQ(MatmulSide(1e15, absl::Seconds(1), 1), 512);
}

TEST(Plan, RepetitionsFillTheTimeWithinBounds) {
  EXPECT_EQ(Repetitions(absl::Milliseconds(10), absl::Milliseconds(500), 100), 50);
  EXPECT_EQ(Repetitions(absl::Seconds(9), absl::Milliseconds(500), 100), 1);
  EXPECT_EQ(Repetitions(absl::Microseconds(1), absl::Milliseconds(500), 100), 100);
  EXPECT_EQ(Repetitions(absl::ZeroDuration(), absl::Milliseconds(500), 100), 100);
}

}  // namespace
}  // namespace tensord::tour
