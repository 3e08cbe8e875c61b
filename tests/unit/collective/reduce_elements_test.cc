// Compares the elementwise part of reductions with loops in plain C++.
#include "tensord/server/collective/reduce_elements.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <limits>
#include <vector>

#include "tensord/common/float16.h"

namespace tensord::server {
namespace {

constexpr CollectiveReduction kSum = CollectiveReduction::kSum;
constexpr CollectiveReduction kMax = CollectiveReduction::kMax;

// Lengths around the sizes of vectors and blocks.
constexpr int64_t kLengths[] = {0, 1, 3, 7, 16, 31, 1023, 1024, 1025, 5000};

// Returns one of 4001 different values.
template <typename T>
T ValueAt(int64_t i) {
  const int64_t spread = (i * 7919 + 17) % 4001 - 2000;
  if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(spread * 1000003);
  } else {
    return static_cast<T>(static_cast<float>(spread) / 64);
  }
}

template <typename T>
T Reference(CollectiveReduction reduction, T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    using Unsigned = std::make_unsigned_t<T>;
    if (reduction == kMax) return a < b ? b : a;
    return static_cast<T>(static_cast<Unsigned>(a) + static_cast<Unsigned>(b));
  } else if constexpr (std::is_same_v<T, double>) {
    return reduction == kMax ? (a < b ? b : a) : a + b;
  } else {
    const float x = a, y = b;
    return static_cast<T>(reduction == kMax ? (x < y ? y : x) : x + y);
  }
}

template <typename T>
bool SameBits(T a, T b) {
  using Bytes = std::array<std::byte, sizeof(T)>;
  return std::bit_cast<Bytes>(a) == std::bit_cast<Bytes>(b);
}

template <typename T>
void CheckReduction(DType dtype, CollectiveReduction reduction) {
  for (int64_t length : kLengths) {
    std::vector<T> a(length), b(length), out(length + 1, ValueAt<T>(3));
    for (int64_t i = 0; i < length; ++i) {
      a[i] = ValueAt<T>(i);
      b[i] = ValueAt<T>(3 * i + 11);
    }
    ReduceElements(reduction, dtype, out.data(), a.data(), b.data(), length);
    for (int64_t i = 0; i < length; ++i) {
      ASSERT_TRUE(SameBits(out[i], Reference(reduction, a[i], b[i])))
          << DTypeName(dtype) << " " << i << " of " << length;
    }
    EXPECT_TRUE(SameBits(out[length], ValueAt<T>(3))) << "nothing is written past the end";
    // Reduces in place, as ring algorithms do.
    std::vector<T> in_place = a;
    ReduceElements(reduction, dtype, in_place.data(), in_place.data(), b.data(), length);
    for (int64_t i = 0; i < length; ++i) ASSERT_TRUE(SameBits(in_place[i], out[i]));
  }
}

TEST(ReduceElementsTest, AgreesWithPlainLoops) {
  for (CollectiveReduction reduction : {kSum, kMax}) {
    CheckReduction<Half>(DType::kFloat16, reduction);
    CheckReduction<BFloat16>(DType::kBFloat16, reduction);
    CheckReduction<float>(DType::kFloat32, reduction);
    CheckReduction<double>(DType::kFloat64, reduction);
    CheckReduction<int32_t>(DType::kInt32, reduction);
    CheckReduction<int64_t>(DType::kInt64, reduction);
    CheckReduction<int8_t>(DType::kInt8, reduction);
    CheckReduction<uint8_t>(DType::kUInt8, reduction);
    CheckReduction<uint32_t>(DType::kUInt32, reduction);
    CheckReduction<uint64_t>(DType::kUInt64, reduction);
  }
}

TEST(ReduceElementsTest, IntegersWrapAround) {
  const int32_t a = std::numeric_limits<int32_t>::max(), b = 1;
  int32_t sum = 0;
  ReduceElements(kSum, DType::kInt32, &sum, &a, &b, 1);
  EXPECT_EQ(sum, std::numeric_limits<int32_t>::min());
}

TEST(ReduceElementsTest, PropagatesNaN) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float a[] = {nan, 1, nan}, b[] = {2, nan, nan};
  float out[3] = {};
  ReduceElements(kMax, DType::kFloat32, out, a, b, 3);
  for (float value : out) EXPECT_TRUE(std::isnan(value));
  const Half half_a[] = {Half(nan), Half(1)}, half_b[] = {Half(2), Half(nan)};
  Half half_out[2] = {};
  ReduceElements(kMax, DType::kFloat16, half_out, half_a, half_b, 2);
  for (Half value : half_out) EXPECT_TRUE(std::isnan(static_cast<float>(value)));
}

TEST(ReduceElementsTest, DividesForTheMean) {
  std::vector<double> doubles = {3, -9, 0.75};
  DivideElements(DType::kFloat64, doubles.data(), 3, 3);
  EXPECT_THAT(doubles, testing::ElementsAre(1, -3, 0.25));
  std::vector<float> floats = {4, -10};
  DivideElements(DType::kFloat32, floats.data(), 2, 4);
  EXPECT_THAT(floats, testing::ElementsAre(1, -2.5f));
  std::vector<BFloat16> halves(2000, BFloat16(7));
  DivideElements(DType::kBFloat16, halves.data(), 2000, 2);
  for (BFloat16 value : halves) EXPECT_EQ(static_cast<float>(value), 3.5f);
}

}  // namespace
}  // namespace tensord::server
