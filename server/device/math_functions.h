// The functions of libm by operand type, and the functions that libm lacks.
//
// The host's kernel files are compiled several times, once for each instruction set. Each time,
// TENSORD_ISA_NAMESPACE has another value, so that the linker never mixes two versions of one
// function.
#pragma once

#include <cmath>

#include "tensord/common/float16.h"

#ifndef TENSORD_ISA_NAMESPACE
#define TENSORD_ISA_NAMESPACE portable
#endif

namespace tensord::server {
inline namespace TENSORD_ISA_NAMESPACE {
namespace math {

// These call the global C functions, because a host kernel may declare vector variants of those.
#define TENSORD_LIBM_UNARY(Function, name)                           \
  TENSORD_HD inline float Function(float x) { return ::name##f(x); } \
  TENSORD_HD inline double Function(double x) { return ::name(x); }
TENSORD_LIBM_UNARY(Exp, exp)
TENSORD_LIBM_UNARY(Expm1, expm1)
TENSORD_LIBM_UNARY(Log, log)
TENSORD_LIBM_UNARY(Log1p, log1p)
TENSORD_LIBM_UNARY(Log2, log2)
TENSORD_LIBM_UNARY(Log10, log10)
TENSORD_LIBM_UNARY(Sin, sin)
TENSORD_LIBM_UNARY(Cos, cos)
TENSORD_LIBM_UNARY(Tan, tan)
TENSORD_LIBM_UNARY(Asin, asin)
TENSORD_LIBM_UNARY(Acos, acos)
TENSORD_LIBM_UNARY(Atan, atan)
TENSORD_LIBM_UNARY(Sinh, sinh)
TENSORD_LIBM_UNARY(Cosh, cosh)
TENSORD_LIBM_UNARY(Tanh, tanh)
TENSORD_LIBM_UNARY(Asinh, asinh)
TENSORD_LIBM_UNARY(Acosh, acosh)
TENSORD_LIBM_UNARY(Atanh, atanh)
TENSORD_LIBM_UNARY(Erf, erf)
TENSORD_LIBM_UNARY(Erfc, erfc)
TENSORD_LIBM_UNARY(Sqrt, sqrt)
TENSORD_LIBM_UNARY(Fabs, fabs)
TENSORD_LIBM_UNARY(Floor, floor)
TENSORD_LIBM_UNARY(Ceil, ceil)
TENSORD_LIBM_UNARY(Trunc, trunc)
// Rounds halves to even: the program never changes the rounding mode.
TENSORD_LIBM_UNARY(Round, rint)
#undef TENSORD_LIBM_UNARY

#define TENSORD_LIBM_BINARY(Function, name)                                      \
  TENSORD_HD inline float Function(float x, float y) { return ::name##f(x, y); } \
  TENSORD_HD inline double Function(double x, double y) { return ::name(x, y); }
TENSORD_LIBM_BINARY(Pow, pow)
TENSORD_LIBM_BINARY(Atan2, atan2)
TENSORD_LIBM_BINARY(Hypot, hypot)
TENSORD_LIBM_BINARY(Fmod, fmod)
TENSORD_LIBM_BINARY(Copysign, copysign)
#undef TENSORD_LIBM_BINARY

// Returns c₀ tⁿ + c₁ tⁿ⁻¹ + … + cₙ.
template <typename T, typename... Coefficients>
TENSORD_HD inline T Polynomial(T t, T highest, Coefficients... others) {
  T sum = highest;
  ((sum = sum * t + others), ...);
  return sum;
}

// Returns the inverse of erf by the method of Giles (2010). Let w be -log(1 - x²). Then erfinv(x) /
// x is nearly a polynomial of w, and of √w for larger w. The polynomials interpolate it at
// Chebyshev nodes, with relative errors of 7e-9 in float and 3e-17 in double. There are no
// branches, so that loops vectorise.
TENSORD_HD inline float Erfinv(float x) {
  const float w = -Log((1.0f - x) * (1.0f + x));
  const bool central = w < 5.0f;
  const float t = central ? w - 2.5f : Sqrt(w) - 3.0f;
  const float ratio = Polynomial(
      t, central ? -8.93192597e-9f : 1.29241755e-4f, central ? 2.33359672e-8f : -3.19926673e-4f,
      central ? 4.68131348e-7f : -7.60479017e-5f, central ? -3.46398527e-6f : 1.49722251e-3f,
      central ? -4.97241969e-6f : -3.58781577e-3f, central ? 2.18349386e-4f : 5.68267852e-3f,
      central ? -1.25272639e-3f : -7.63913903e-3f, central ? -4.17739288e-3f : 9.44574382e-3f,
      central ? 2.46640279e-1f : 1.00167507f, central ? 1.50140936f : 2.83297679f);
  return Fabs(x) == 1.0f ? x / (1.0f - Fabs(x)) : x * ratio;
}
TENSORD_HD inline double Erfinv(double x) {
  const double w = -Log((1.0 - x) * (1.0 + x));
  const double root = Sqrt(w);
  const double central = Polynomial(
      w - 3.125, 3.2407044593799019e-21, -1.1134837698327019e-21, -3.4996044354754178e-19,
      1.1500222520662530e-18, 1.5574320246233252e-17, -1.3016928016796445e-16,
      -4.0282154327661742e-17, 6.5964077124208341e-15, -4.0012377350918959e-14,
      -8.1183994430743532e-14, 2.6304834740560441e-12, -1.2976885526532076e-11,
      -5.4142871980847161e-11, 1.0512181539804127e-9, -4.1126608200232401e-9,
      -2.9070382262927266e-8, 4.2347881737823393e-7, -1.3654691850603575e-6, -1.3882523394405317e-5,
      1.8673420802464838e-4, -7.4070253415447699e-4, -6.0336708714278499e-3, 2.4015818242558832e-1,
      1.6536545626831027);
  const double outer = Polynomial(
      root - 3.25, -1.5102695423335064e-8, 6.9692419776296940e-10, 1.3104351499972014e-7,
      -2.7134511054394561e-7, -2.7004219280868946e-8, 1.4987130784186126e-6, -3.9860843952147560e-6,
      2.9257291901789825e-6, 1.2465167157087252e-5, -4.7318984120112455e-5, 6.8287086547533767e-5,
      2.4031257015092524e-5, -3.5503780975963811e-4, 9.5328936374356372e-4, -1.6882755357337072e-3,
      2.4914420969817609e-3, -3.7512085082155611e-3, 5.3709145535716796e-3, 1.0052589676941653,
      3.0838856104922206);
  const double tail = Polynomial(
      root - 5.0, -1.5439278197208342e-11, 4.2802433037309421e-11, 4.6977303445962824e-11,
      -4.3738896637340694e-10, 1.3589365341577092e-9, -3.4714379338967190e-9, 7.7774285398266346e-9,
      -1.5255160181292630e-8, 2.9044909320789474e-8, -6.7556030353736606e-8, 2.2904362741369039e-7,
      -9.9302947749828854e-7, 4.5260543285596712e-6, -1.9681770676949253e-5, 7.5995277920249399e-5,
      -2.1503011983024694e-4, -1.3871931837351697e-4, 1.0103004648645454, 4.8499064014085843);
  const double ratio = w < 6.25 ? central : w < 16.0 ? outer : tail;
  return Fabs(x) == 1.0 ? x / (1.0 - Fabs(x)) : x * ratio;
}

// Computes a b as the sum of the result and of `rest`, which is what rounding the result leaves.
// The sum is exact if |a| and |b| are below 2^995, unless the rest underflows (Dekker, "A
// floating-point technique for extending the available precision", 1971).
TENSORD_HD inline double ExactProduct(double a, double b, double* rest) {
  const double product = a * b;
#if defined(__FMA__) || defined(__CUDA_ARCH__)
  *rest = ::fma(a, b, -product);
#else
  constexpr double kSplit = 134217729;
  const double scaled_a = a * kSplit, high_a = scaled_a - (scaled_a - a), low_a = a - high_a;
  const double scaled_b = b * kSplit, high_b = scaled_b - (scaled_b - b), low_b = b - high_b;
  *rest = ((high_a * high_b - product) + high_a * low_b + low_a * high_b) + low_a * low_b;
#endif
  return product;
}

// Does the same for a + b (Knuth, "The Art of Computer Programming", volume 2, 4.2.2).
TENSORD_HD inline double ExactSum(double a, double b, double* rest) {
  const double sum = a + b, part = sum - a;
  *rest = (a - (sum - part)) + (b - part);
  return sum;
}

// Computes a / sqrt(2) as the sum of the result and of `rest`, which is what rounding the result
// leaves.
TENSORD_HD inline float TimesSqrtHalf(float a, float* rest) {
  const double exact = static_cast<double>(a) * 0.70710678118654752440;
  const auto rounded = static_cast<float>(exact);
  *rest = static_cast<float>(exact - static_cast<double>(rounded));
  return rounded;
}
TENSORD_HD inline double TimesSqrtHalf(double a, double* rest) {
  constexpr double kFactor = 0.70710678118654752440, kFactorRest = -4.8336466567264567e-17;
  double error;
  const double product = ExactProduct(a, kFactor, &error);
  *rest = error + a * kFactorRest;
  return product;
}

// Returns x Phi(x) with errors of at most 6 ulp, without double arithmetic and without branches. On
// a GPU, double arithmetic and erfcf would take longer than the memory accesses of the kernel.
// For a >= 0, Phi(-a) = exp(-a² / 2) Q(t) with t = 1 / (1 + 0.45 a). The polynomial approximates
// Q(t) / t with a relative error of 7e-9 for a <= 13.6. Beyond that, Phi(-a) underflows. The error
// of rounding a² is corrected to first order.
TENSORD_HD inline float GeluWithoutDouble(float x) {
  const float a = ::fminf(Fabs(x), 20.0f);
  const float t = 1.0f / ::fmaf(0.45f, a, 1.0f);
  const float square = a * a, rest = ::fmaf(a, a, -square);
  const float q = t * Polynomial(t, -0.0431260021f, 0.261136111f, -0.656572838f, 0.843675754f,
                                 -0.51655643f, 0.0851190309f, -0.0502276065f, 0.0745423047f,
                                 0.142967092f, 0.179517751f, 0.17952483f);
  const float e = Exp(-0.5f * square);
  const float tail = ((x > 0.0f ? a : x) * q) * ::fmaf(e, -0.5f * rest, e);
  return x > 0.0f ? x - tail : tail;
}

// Returns x Phi(x), where Phi is the normal distribution function: x erfc(z) / 2, z = -x / sqrt(2).
// 1 + erf(x / sqrt(2)) would cancel for x < 0. erfc multiplies a relative error of z by up to 2 z²,
// so the error of rounding z is corrected to first order: the logarithmic derivative of erfc is
// about -(z + sqrt(z² + 4 / pi)). Beyond `kFar`, the result underflows or is x.
template <typename T>
TENSORD_HD inline T Gelu(T x) {
#if defined(__CUDA_ARCH__)
  if constexpr (sizeof(T) == 4) return GeluWithoutDouble(x);
#endif
  constexpr T kFar = sizeof(T) == 4 ? T(20) : T(60);
  T rest;
  const T z = -TimesSqrtHalf(x, &rest);
  const T slope = z + Sqrt(z * z + T(1.2732395447351628));
  const T correction = Fabs(x) < kFar ? rest * slope : T{0};
  const T tail = Erfc(z);
  return T(0.5) * x * (tail + tail * correction);
}

// Computes 2^32 (float) or 2^64 (double) exp(-2 |u|) for u = sqrt(2 / pi) (x + 0.044715 x³).
// Returns the logarithm as the sum of the result and of `rest`.
TENSORD_HD inline float GeluTanhLogarithm(float x, float* rest) {
  const auto wide = static_cast<double>(x);
  const double exact =
      22.18070977791825 - Fabs(wide) * (1.5957691216057308 + 0.07135481627260025 * (wide * wide));
  const auto rounded = static_cast<float>(exact);
  *rest = static_cast<float>(exact - static_cast<double>(rounded));
  return rounded;
}
TENSORD_HD inline double GeluTanhLogarithm(double x, double* rest) {
  constexpr double kLinear = 1.5957691216057308, kLinearRest = -9.96930880911092e-17;
  constexpr double kCubic = 0.07135481627260025, kCubicRest = -6.175149918155315e-19;
  constexpr double kScale = 44.3614195558365, kScaleRest = 1.4841899608616317e-15;
  double square_rest, cubic_rest, factor_rest, product_rest, sum_rest;
  const double square = ExactProduct(x, x, &square_rest);
  const double cubic = ExactProduct(square, kCubic, &cubic_rest);
  cubic_rest += square_rest * kCubic + square * kCubicRest;
  const double factor = ExactSum(cubic, kLinear, &factor_rest);
  factor_rest += cubic_rest + kLinearRest;
  const double product = ExactProduct(Fabs(x), factor, &product_rest);
  product_rest += Fabs(x) * factor_rest;
  const double sum = ExactSum(kScale, -product, &sum_rest);
  *rest = sum_rest + (kScaleRest - product_rest);
  return sum;
}

// Returns x (1 + tanh(u)) / 2 with the u above, which is x / (1 + e) for e = exp(-2 u). For x < 0,
// exp(-2 u) would overflow before the result underflows, so the result is x e / (1 + e) with
// e = exp(2 u). exp multiplies the error of its argument by the argument, so the error is corrected
// to first order. e is scaled because it underflows before the result does. Beyond `kFar`, the
// result underflows or is x.
template <typename T>
TENSORD_HD inline T GeluTanh(T x) {
  constexpr T kFar = sizeof(T) == 4 ? T(20) : T(60);
  constexpr T kUnscale = sizeof(T) == 4 ? T(0x1p-32) : T(0x1p-64);
  T rest;
  const T rounded = Exp(GeluTanhLogarithm(x, &rest));
  const T scaled = rounded + rounded * (Fabs(x) < kFar ? rest : T{0});
  const T quotient = (x < T{0} ? x * scaled : x) / (T{1} + scaled * kUnscale);
  return x < T{0} ? quotient * kUnscale : quotient;
}

// Computes fmod(a, b) without branches. Returns false if it can't: if the quotient is large, b is
// 0, or an operand isn't finite. The quotient is rounded to the nearest integer, which is exact or
// too far from 0 by one. The product with b is exact, and so are the differences, because their
// results can be represented.
TENSORD_HD inline bool FastFmod(float a, float b, float* rest) {
  constexpr double kRounder = 0x1.8p52;  // x + kRounder has no bits below the integers
  const auto wide_a = static_cast<double>(a), wide_b = static_cast<double>(b);
  const double ratio = wide_a / wide_b;
  const bool possible = (Fabs(ratio) < 0x1p29) & (Fabs(b) <= 3.40282347e38f);
  const double quotient = ((possible ? ratio : 0.0) + kRounder) - kRounder;
  const double left = wide_a - quotient * wide_b;
  const bool past = (left != 0.0) & ((left < 0.0) != (wide_a < 0.0));
  *rest = static_cast<float>(left + (past ? Copysign(wide_b, wide_a) : 0.0));
  return possible;
}
TENSORD_HD inline bool FastFmod(double a, double b, double* rest) {
  constexpr double kRounder = 0x1.8p52;
  const double ratio = a / b;
  const bool possible = (Fabs(ratio) < 0x1p50) & (Fabs(b) <= 0x1p990);
  const double quotient = ((possible ? ratio : 0.0) + kRounder) - kRounder;
#if defined(__FMA__) || defined(__CUDA_ARCH__)
  const double left = ::fma(-quotient, b, a);
#else
  double error;
  const double product = ExactProduct(quotient, b, &error);
  const double left = (a - product) - error;
#endif
  const bool past = (left != 0.0) & ((left < 0.0) != (a < 0.0));
  *rest = left + (past ? Copysign(b, a) : 0.0);
  return possible;
}

}  // namespace math
}  // namespace TENSORD_ISA_NAMESPACE
}  // namespace tensord::server
