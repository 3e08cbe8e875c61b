// Functions of math_functions.h that only a GPU's kernels call.
#include "tensord/server/device/math_functions.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace tensord::server {
namespace {

// Computes the definition in long double.
long double ExactGelu(float x) {
  const long double wide = x;
  return wide / 2 * std::erfc(-wide / std::sqrt(2.0L));
}

TEST(GeluWithoutDoubleTest, HasErrorsOfAtMostSixUlp) {
  double worst = 0;
  for (int i = -145000; i <= 60000; ++i) {
    const auto x = static_cast<float>(i / 10000.0 + i * 1e-9);
    const long double exact = ExactGelu(x);
    const auto rounded = static_cast<float>(std::fabs(exact));
    const float ulp = std::nextafter(rounded, INFINITY) - rounded;
    const long double error = std::fabs(math::GeluWithoutDouble(x) - exact) / ulp;
    worst = std::max(worst, static_cast<double>(error));
  }
  EXPECT_LE(worst, 6);
}

TEST(GeluWithoutDoubleTest, KeepsSpecialValues) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  EXPECT_EQ(math::GeluWithoutDouble(kInf), kInf);
  EXPECT_TRUE(std::isnan(math::GeluWithoutDouble(-kInf)));  // -inf times 0, as the definition says
  EXPECT_TRUE(std::isnan(math::GeluWithoutDouble(NAN)));
  for (const float zero : {0.0f, -0.0f}) {
    EXPECT_EQ(math::GeluWithoutDouble(zero), 0);
    EXPECT_EQ(std::signbit(math::GeluWithoutDouble(zero)), std::signbit(zero));
  }
  EXPECT_EQ(math::GeluWithoutDouble(1e30f), 1e30f);
  EXPECT_EQ(math::GeluWithoutDouble(-1e30f), 0);
}

}  // namespace
}  // namespace tensord::server
