#include "tensord/client/internal/convert.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <complex>
#include <limits>
#include <vector>

namespace tensord::internal {
namespace {

using ::testing::ElementsAre;

template <Element To, Element From>
std::vector<To> Convert(const std::vector<From>& values) {
  std::vector<To> out(values.size());
  ConvertElements(kDTypeOf<From>, reinterpret_cast<const uint8_t*>(values.data()),
                  static_cast<int64_t>(values.size()), out.data());
  return out;
}

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

TEST(ConvertTest, RealToIntegerTruncatesAndClamps) {
  EXPECT_THAT((Convert<int32_t, double>({1.9, -1.9, 1e10, -1e10, kNaN})),
              ElementsAre(1, -1, INT32_MAX, INT32_MIN, 0));
  EXPECT_THAT((Convert<uint8_t, float>({255.9f, 256, -1})), ElementsAre(255, 255, 0));
  EXPECT_THAT((Convert<int64_t, double>({0x1p62, 0x1p63, -0x1p63, -0x1p64})),
              ElementsAre(int64_t{1} << 62, INT64_MAX, INT64_MIN, INT64_MIN));
  EXPECT_THAT((Convert<int8_t, Half>({Half(-200.0f), Half(1.5f)})), ElementsAre(-128, 1));
}

TEST(ConvertTest, RealToUnsignedClampsToTheWholeRange) {
  EXPECT_THAT((Convert<uint64_t, double>({-1, 0x1p63, 0x1p64, kNaN})),
              ElementsAre(0, uint64_t{1} << 63, UINT64_MAX, 0));
  EXPECT_THAT((Convert<uint32_t, double>({4294967295.5, 0x1p33})), ElementsAre(~0u, ~0u));
  EXPECT_THAT((Convert<int16_t, float>({-40000, 40000})), ElementsAre(-32768, 32767));
}

TEST(ConvertTest, LargeUnsignedIntegersStayPositive) {
  EXPECT_THAT((Convert<double, uint64_t>({uint64_t{1} << 63})), ElementsAre(0x1p63));
  EXPECT_THAT((Convert<int64_t, uint32_t>({~0u})), ElementsAre(4294967295));
  EXPECT_THAT((Convert<uint64_t, int16_t>({-1})), ElementsAre(UINT64_MAX));
}

TEST(ConvertTest, ComplexElementsAreCopied) {
  using Complex = std::complex<float>;
  EXPECT_THAT((Convert<Complex, Complex>({{1, -2}})), ElementsAre(Complex(1, -2)));
}

TEST(ConvertTest, IntegersWrap) {
  EXPECT_THAT((Convert<uint8_t, int32_t>({-1, 256, 7})), ElementsAre(255, 0, 7));
}

TEST(ConvertTest, NarrowFloatsGoThroughFloat) {
  EXPECT_THAT((Convert<float, Half>({Half(0.5f)})), ElementsAre(0.5f));
  EXPECT_THAT((Convert<double, BFloat16>({BFloat16(-3.0f)})), ElementsAre(-3.0));
  EXPECT_EQ((Convert<Half, int64_t>({2048})[0].bits), Half(2048.0f).bits);
}

TEST(ConvertTest, NonzeroElementsAreTrue) {
  const uint8_t bytes[] = {0, 1, 2};
  int32_t out[3];
  ConvertElements(DType::kBool, bytes, 3, out);
  EXPECT_THAT(out, ElementsAre(0, 1, 1));
  bool bools[3];
  const float floats[] = {0.0f, -0.0f, 0.25f};
  ConvertElements(DType::kFloat32, reinterpret_cast<const uint8_t*>(floats), 3, bools);
  EXPECT_THAT(bools, ElementsAre(false, false, true));
}

TEST(ConvertTest, DataNeedNotBeAligned) {
  uint8_t bytes[9] = {};
  const double value = 2.5;
  std::copy_n(reinterpret_cast<const uint8_t*>(&value), 8, bytes + 1);
  float out = 0;
  ConvertElements(DType::kFloat64, bytes + 1, 1, &out);
  EXPECT_EQ(out, 2.5f);
}

}  // namespace
}  // namespace tensord::internal
