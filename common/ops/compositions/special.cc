// Special functions. xlogy and xlog1py are computed in the dtype of the result, or in float32 if
// that has 16 bits. All other functions are computed in float64. Results are rounded once. Integers
// and bool give float32.
#include <cmath>
#include <initializer_list>
#include <limits>
#include <vector>

#include "tensord/common/ops/composition.h"
#include "tensord/common/ops/op_inference.h"
#include "tensord/common/ops/op_registry.h"

namespace tensord {
namespace formula {
namespace {

constexpr double kPi = 3.14159265358979323846;
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// Returns the polynomial with these coefficients, the one of the highest power first.
Value Polynomial(const Value& x, std::initializer_list<double> coefficients) {
  Value sum = *coefficients.begin();
  for (const double* each = coefficients.begin() + 1; each != coefficients.end(); ++each) {
    sum = sum * x + *each;
  }
  return sum;
}

// If x < 1/2, a reflection formula computes f(x) from f(1 - x). This struct has the values that
// such a formula reads.
struct Reflection {
  explicit Reflection(const Value& x)
      : reflects(Lt(x, 0.5)), y(Where(reflects, 1 - x, x)), angle((x - Round(x)) * kPi) {}

  Value reflects;
  Value y;  // 1 - x below 1/2, otherwise x
  // pi x minus the nearest multiple of pi. tan(angle) is tan(pi x), and abs(sin(angle)) is
  // abs(sin(pi x)).
  Value angle;
};

// Returns whether x is 0 or a negative integer.
Value IsPole(const Value& x) { return BitwiseAnd(Le(x, 0), Eq(x, Floor(x))); }

// Returns log(abs(gamma(2 + z))) for abs(z) < 1/4. The coefficients of its Taylor series are
// 1 - 0.5772… (Euler's constant) and (-1)^k (zeta(k) - 1) / k.
Value LogGammaNearTwo(const Value& z) {
  return z * Polynomial(
                 z, {-4.4924691987645660433e-7, 9.5514121304074198329e-7, -2.0392157538013662368e-6,
                     4.3748667899074878042e-6, -9.439488275268395904e-6, 2.0507212775670691553e-5,
                     -4.49262367381331417e-5, 9.9457512781808533715e-5, -2.2315475845357937976e-4,
                     5.0966952474304242234e-4, -1.1927539117032609771e-3, 2.8905103307415232858e-3,
                     -7.3855510286739852663e-3, 2.0580808427784547879e-2, -6.7352301053198095133e-2,
                     3.2246703342411321824e-1, 4.2278433509846713939e-1});
}

// Returns log(abs(gamma(x))). x >= 8: Stirling's series. 1/2 <= x < 8: the recurrence to x + 8.
// x < 1/2: the reflection formula. Near the zeros 1 and 2: the Taylor series.
Value LogGamma(const Value& x) {
  constexpr int kShift = 8;
  constexpr double kHalfLogTwoPi = 0.91893853320467274178, kLogPi = 1.14472988584940017414;
  const Reflection at(x);
  const Value large = Ge(at.y, kShift);
  Value product = at.y;
  for (int i = 1; i < kShift; ++i) product = product * (at.y + i);
  const Value z = Where(large, at.y, at.y + kShift), inverse = 1 / z;
  const Value series = Polynomial(inverse * inverse, {-691.0 / 360360, 1.0 / 1188, -1.0 / 1680,
                                                      1.0 / 1260, -1.0 / 360, 1.0 / 12}) *
                       inverse;
  const Value stirling = (z - 0.5) * Log(z) - z + kHalfLogTwoPi + series;
  const Value value = Where(large, stirling, stirling - Log(product));
  const Value reflected = Where(at.reflects, kLogPi - Log(Abs(Sin(at.angle))) - value, value);
  const Value from_one = x - 1, from_two = x - 2;
  const Value is_near_one = Lt(Abs(from_one), 0.25), is_near_two = Lt(Abs(from_two), 0.25);
  const Value distance = Where(is_near_one, from_one, Where(is_near_two, from_two, 0));
  const Value two = LogGammaNearTwo(distance), one = two - Log1p(distance);
  // Near 0, gamma(x) is 1 / x. The angle of a subnormal number has few digits.
  const Value size = Abs(x), small = Where(Lt(size, 1e-300), -Log(size), reflected);
  const Value is_infinite = BitwiseOr(IsPole(x), Eq(x, kInfinity));
  return Where(is_near_one, one, Where(is_near_two, two, Where(is_infinite, kInfinity, small)));
}

// Returns the derivative of LogGamma. x >= 10: the asymptotic series. 1/2 <= x < 10: the recurrence
// to x + 10. x < 1/2: the reflection formula.
Value Digamma(const Value& x) {
  constexpr int kShift = 10;
  const Reflection at(x);
  Value sum = 1 / at.y;
  for (int i = 1; i < kShift; ++i) sum = sum + 1 / (at.y + i);
  const Value large = Ge(at.y, kShift);
  const Value z = Where(large, at.y, at.y + kShift), square = 1 / (z * z);
  const Value series =
      Polynomial(square, {-1.0 / 132, 1.0 / 240, -1.0 / 252, 1.0 / 120, -1.0 / 12}) * square;
  const Value asymptotic = Log(z) - 0.5 / z + series;
  const Value value = Where(large, asymptotic, asymptotic - sum);
  const Value reflected = Where(at.reflects, value - kPi / Tan(at.angle), value);
  return Where(Eq(x, 0), Copysign(kInfinity, -x), Where(IsPole(x), kNan, reflected));
}

// Returns the sum of (q + k)^-s over k >= 0 for q > 0, by the formula of Euler and Maclaurin. s is
// a Value or a double.
template <typename S>
Value ZetaOfPositive(const S& s, const Value& q) {
  constexpr int kTerms = 10;
  // B_2j / (2j)!
  constexpr double kBernoulli[] = {1.0 / 12,
                                   -1.0 / 720,
                                   1.0 / 30240,
                                   -1.0 / 1209600,
                                   1.0 / 47900160,
                                   -691.0 / 1307674368000,
                                   1.0 / 74724249600,
                                   -3617.0 / 10670622842880000,
                                   43867.0 / 5109094217170944000};
  const S power = -s;
  Value sum = Pow(q, power);
  for (int k = 1; k < kTerms; ++k) sum = sum + Pow(q + k, power);
  const Value w = q + kTerms, square = w * w, last = Pow(w, power);
  sum = sum + last * w / (s - 1) + last * 0.5;
  Value factor = s * last / w;
  int j = 0;
  for (const double bernoulli : kBernoulli) {
    sum = sum + factor * bernoulli;
    factor = factor * (s + (2 * j + 1)) * (s + (2 * j + 2)) / square;
    ++j;
  }
  return Where(Eq(q, kInfinity), 0, sum);
}

// Returns the sum of (q + k)^-s over k >= 0 for an integer s > 1. `sign` is (-1)^s. If q < 0, the
// terms below 0 are, except for the sign, those from r up to -q, where r is the smallest positive
// one.
template <typename S>
Value ZetaOfInteger(const S& s, const Value& sign, const Value& q) {
  const Value is_negative = Lt(q, 0), size = Where(is_negative, -q, 1);
  const Value r = size - Ceil(size) + 1;
  const Value below = sign * (ZetaOfPositive(s, r) - ZetaOfPositive(s, size + 1));
  const Value above = ZetaOfPositive(s, Where(is_negative, 1 - r, q));
  return Where(IsPole(q), kInfinity, Where(is_negative, above + below, above));
}

// Returns exp(-|x|) I_n(x) for the order n, 0 or 1. |x| < 25: the power series. Otherwise the
// asymptotic series.
Value ScaledBessel(const Value& x, int order) {
  constexpr double kSmall = 25;
  constexpr int kTerms = 42, kLargeTerms = 16;
  const Value size = Abs(x), is_small = Lt(size, kSmall);
  const Value near = Where(is_small, size, 0), quarter = near * near * 0.25;
  Value term = near * 0.5, sum = term;
  if (order == 0) {
    term = quarter;  // of k = 1; that of k = 0 is 1
    sum = term + 1;
  }
  for (int k = order == 0 ? 2 : 1; k < kTerms; ++k) {
    term = term * quarter / (static_cast<double>(k) * (k + order));
    sum = sum + term;
  }
  const Value far = Where(is_small, kSmall, size), inverse = 1 / (far * 8);
  Value part = inverse * (1 - 4.0 * order * order), series = part + 1;
  for (int k = 2; k < kLargeTerms; ++k) {
    const double odd = 2 * k - 1;
    part = part * inverse * ((odd * odd - 4.0 * order * order) / k);
    series = series + part;
  }
  const Value asymptotic = series / Sqrt(far * (2 * kPi));
  const Value value = Where(is_small, sum * Exp(-near), asymptotic);
  const Value or_zero = Where(Eq(size, kInfinity), 0, value);
  const Value or_nan = Where(Ne(x, x), x, or_zero);
  return order == 0 ? or_nan : or_nan * Sign(x);
}
Value BesselI0e(const Value& x) { return ScaledBessel(x, 0); }
Value BesselI1e(const Value& x) { return ScaledBessel(x, 1); }
// Returns I_n(x) for the order n, 0 or 1. exp(|x|) overflows float64 before I_n(x) does, so the
// function multiplies by exp(|x| / 2) twice. From 720 on, the result is infinite.
Value Bessel(const Value& x, int order) {
  const Value size = Abs(x), root = Exp(size * 0.5);
  const Value infinity = order == 0 ? Value(kInfinity) : x * kInfinity;
  return Where(Gt(size, 720), infinity, ScaledBessel(x, order) * root * root);
}
Value BesselI0(const Value& x) { return Bessel(x, 0); }
Value BesselI1(const Value& x) { return Bessel(x, 1); }

// Returns sin(x) / x. If abs(x) < 1/2, sums the power series.
Value SphericalJ0(const Value& x) {
  const Value series = Polynomial(x * x, {1.0 / 6227020800, -1.0 / 39916800, 1.0 / 362880,
                                          -1.0 / 5040, 1.0 / 120, -1.0 / 6, 1});
  const Value size = Abs(x), value = Where(Lt(size, 0.5), series, Sin(x) / x);
  return Where(Eq(size, kInfinity), 0, value);
}

// From 2^52 on, x is an integer.
Value SincOf(const Value& x) {
  const Value angle = x * kPi, size = Abs(x);
  const Value is_large = BitwiseAnd(Ge(size, 0x1p52), Lt(size, kInfinity));
  return Where(Eq(x, 0), 1, Where(is_large, 0, Sin(angle) / angle));
}

Value EntropyOf(const Value& x) {
  const Value value = Where(Eq(x, 0), 0, -(x * Log(x)));
  return Where(Lt(x, 0), -kInfinity, value);
}

template <Value (*kFunction)(const Value&)>
void InFloat64(Formula& f) {
  const Value x = f.input(0);
  f.Return(kFunction(x.To(DType::kFloat64)).To(FloatingDType(x.dtype())));
}

void Polygamma(Formula& f) {
  const int64_t n = f.attrs().Int("n");
  if (n < 0) return f.Fail("n must be at least 0");
  if (n == 0) return InFloat64<Digamma>(f);
  const Value x = f.input(0).To(DType::kFloat64);
  const double order = static_cast<double>(n), s = order + 1, sign = n % 2 == 0 ? -1 : 1;
  Value value = x;
  if (n == 1) {
    const Reflection at(x);
    const Value zeta = ZetaOfPositive(s, at.y), cosecant = kPi / Sin(at.angle);
    value = Where(at.reflects, cosecant * cosecant - zeta, zeta);
  } else {
    value = ZetaOfInteger(s, sign, x) * (sign * std::tgamma(s));
  }
  f.Return(value.To(FloatingDType(f.input(0).dtype())));
}

void Zeta(Formula& f) {
  const DType dtype = FloatingDType(PromotedDType(f.inputs()));
  const Value q = f.input(1).To(DType::kFloat64);
  Value s = f.input(0).To(DType::kFloat64);
  // A step fuses only with steps of its shape, so s gets the shape of the result.
  if (s.shape() != q.shape()) s = Where(Eq(q, q), s, s);
  const Value is_whole = Eq(s, Floor(s)), half = s * 0.5;
  const Value sign = Where(Eq(half, Floor(half)), 1.0, -1.0);
  const Value value = ZetaOfInteger(s, sign, q);
  // A power of a negative number that isn't real.
  const Value is_real = BitwiseOr(is_whole, BitwiseOr(Gt(q, 0), Eq(q, Floor(q))));
  const Value valued = Where(is_real, Where(Lt(s, 1), kNan, value), kNan);
  f.Return(Where(Eq(s, 1), kInfinity, valued).To(dtype));
}

// Returns x kFunction(y), and 0 where x is 0 and y isn't NaN.
template <Value (*kFunction)(const Value&)>
void TimesLog(Formula& f) {
  const DType dtype = FloatingDType(PromotedDType(f.inputs())), wide = WideDType(dtype);
  const Value x = f.input(0).To(wide), y = f.input(1).To(wide);
  const Value is_zero = BitwiseAnd(Eq(x, 0), Eq(y, y));
  f.Return(Where(is_zero, 0, x * kFunction(y)).To(dtype));
}

void AppendSpecialFunctions(std::vector<OpSchema>& ops) {
  ops.push_back(ElementwiseComposition("lgamma", "log(abs(gamma(x))).", InFloat64<LogGamma>));
  ops.push_back(ElementwiseComposition("digamma", "The derivative of lgamma.", InFloat64<Digamma>));
  ops.push_back(
      ElementwiseComposition("polygamma", "The derivative of order n of digamma.", Polygamma, {"x"},
                             {RequiredAttr("n", AttrType::kInt, "the order, at least 0")}));
  ops.push_back(ElementwiseComposition(
      "zeta", "Hurwitz's function: the sum of (q + k)^-s over k >= 0.", Zeta, {"s", "q"}));
  ops.push_back(ElementwiseComposition("i0", "The modified Bessel function of order 0.",
                                       InFloat64<BesselI0>));
  ops.push_back(ElementwiseComposition("i0e", "exp(-abs(x)) i0(x).", InFloat64<BesselI0e>));
  ops.push_back(ElementwiseComposition("i1", "The modified Bessel function of order 1.",
                                       InFloat64<BesselI1>));
  ops.push_back(ElementwiseComposition("i1e", "exp(-abs(x)) i1(x).", InFloat64<BesselI1e>));
  ops.push_back(ElementwiseComposition("spherical_bessel_j0", "sin(x) / x, and 1 at 0.",
                                       InFloat64<SphericalJ0>));
  ops.push_back(
      ElementwiseComposition("sinc", "sin(pi x) / (pi x), and 1 at 0.", InFloat64<SincOf>));
  ops.push_back(
      ElementwiseComposition("entr", "-x log(x), 0 at 0, and -inf below.", InFloat64<EntropyOf>));
  ops.push_back(ElementwiseComposition("xlogy", "x log(y), and 0 where x is 0 and y isn't NaN.",
                                       TimesLog<Log>, {"x", "y"}));
  ops.push_back(ElementwiseComposition("xlog1py", "x log1p(y), and 0 where x is 0 and y isn't NaN.",
                                       TimesLog<Log1p>, {"x", "y"}));
}

}  // namespace
}  // namespace formula

void AppendSpecialCompositions(std::vector<OpSchema>& ops) { formula::AppendSpecialFunctions(ops); }

}  // namespace tensord
