#include "tensord/common/float16.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace tensord {
namespace {

// Returns the value of a bit pattern, by the definition of IEEE 754's binary formats.
double ValueOf(uint32_t bits, int exponent_bits, int mantissa_bits) {
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const int exponent = static_cast<int>(bits >> mantissa_bits) & ((1 << exponent_bits) - 1);
  const int mantissa = static_cast<int>(bits) & ((1 << mantissa_bits) - 1);
  const double sign = (bits >> (exponent_bits + mantissa_bits)) != 0 ? -1 : 1;
  if (exponent == (1 << exponent_bits) - 1) {
    return mantissa != 0 ? std::numeric_limits<double>::quiet_NaN()
                         : sign * std::numeric_limits<double>::infinity();
  }
  const double scaled = exponent == 0 ? mantissa : mantissa + (1 << mantissa_bits);
  return sign * std::ldexp(scaled, std::max(exponent, 1) - bias - mantissa_bits);
}

struct HalfFormat {
  using Type = Half;
  static double Value(uint32_t bits) { return ValueOf(bits, 5, 10); }
  static constexpr uint32_t kInfinity = 0x7c00;
};

struct BFloat16Format {
  using Type = BFloat16;
  static double Value(uint32_t bits) { return ValueOf(bits, 8, 7); }
  static constexpr uint32_t kInfinity = 0x7f80;
};

template <typename Format>
class Float16Test : public testing::Test {};
using Formats = testing::Types<HalfFormat, BFloat16Format>;
TYPED_TEST_SUITE(Float16Test, Formats);

TYPED_TEST(Float16Test, EveryPatternConvertsToItsValueAndBack) {
  using T = typename TypeParam::Type;
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const T value = T::FromBits(static_cast<uint16_t>(bits));
    const float converted = value;
    const double expected = TypeParam::Value(bits);
    if (std::isnan(expected)) {
      ASSERT_TRUE(std::isnan(converted)) << bits;
      ASSERT_GT(T(converted).bits & 0x7fffu, TypeParam::kInfinity) << bits;
      ASSERT_EQ(T(converted).bits & 0x8000u, bits & 0x8000u) << bits;
    } else {
      ASSERT_EQ(converted, expected) << bits;
      ASSERT_EQ(std::signbit(converted), std::signbit(expected)) << bits;
      ASSERT_EQ(T(converted).bits, bits);
    }
  }
}

TYPED_TEST(Float16Test, RoundsToNearestEvenBetweenAllNeighbours) {
  using T = typename TypeParam::Type;
  for (uint32_t low = 0; low < TypeParam::kInfinity; ++low) {
    const double below = TypeParam::Value(low);
    // Above the largest finite value, rounding works as if there were a next exponent.
    const double above = low + 1 == TypeParam::kInfinity ? 2 * below - TypeParam::Value(low - 1)
                                                         : TypeParam::Value(low + 1);
    const auto middle = static_cast<float>(below + (above - below) / 2);
    const uint32_t even = low + (low & 1);
    for (uint32_t sign : {0u, 0x8000u}) {
      const float m = sign != 0 ? -middle : middle;
      const float to_zero = std::nextafter(m, 0.0f);
      const float from_zero = std::nextafter(m, std::copysign(INFINITY, m));
      ASSERT_EQ(T(m).bits, even | sign) << low;
      ASSERT_EQ(T(to_zero).bits, low | sign) << low;
      ASSERT_EQ(T(from_zero).bits, (low + 1) | sign) << low;
    }
  }
}

TYPED_TEST(Float16Test, KeepsNaNInfinityAndZero) {
  using T = typename TypeParam::Type;
  for (uint32_t bits : {0x7f800001u, 0x7fc00000u, 0xff80ffffu, 0x7fffffffu, 0xffffffffu}) {
    EXPECT_GT(T(__builtin_bit_cast(float, bits)).bits & 0x7fffu, TypeParam::kInfinity) << bits;
  }
  EXPECT_EQ(T(INFINITY).bits, TypeParam::kInfinity);
  EXPECT_EQ(T(-INFINITY).bits, TypeParam::kInfinity | 0x8000u);
  EXPECT_EQ(T(std::numeric_limits<float>::max()).bits, TypeParam::kInfinity);
  EXPECT_EQ(T(-0.0f).bits, 0x8000u);
  EXPECT_EQ(T(std::numeric_limits<float>::denorm_min()).bits, 0u);
}

TEST(Float16, ConvertsAtCompileTimeAndFromOtherTypes) {
  static_assert(Half(1.0f).bits == 0x3c00);
  static_assert(BFloat16(1.0f).bits == 0x3f80);
  static_assert(static_cast<float>(Half::FromBits(0x0001)) == 0x1p-24f);
  EXPECT_EQ(static_cast<Half>(int64_t{3}).bits, Half(3.0f).bits);
  EXPECT_EQ(static_cast<double>(BFloat16(-2.5f)), -2.5);
}

}  // namespace
}  // namespace tensord
