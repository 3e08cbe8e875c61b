// Special functions. Those of one operand, polygamma and zeta are computed in float64 and rounded once.
// The others are computed in float32 if an operand has 16 bits. Integers and bool give float32.
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
constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// Returns the polynomial with these coefficients, the one of the highest power first.
Value Polynomial(const Value& x, std::initializer_list<double> coefficients) {
  Value sum = *coefficients.begin();
  for (const double* each = coefficients.begin() + 1; each != coefficients.end(); ++each) {
    sum = sum * x + *each;
  }
  return sum;
}

// What functions that are reflected below 1/2 need of x.
struct Reflection {
  explicit Reflection(const Value& x)
      : reflects(Lt(x, 0.5)), y(Where(reflects, 1 - x, x)), angle((x - Round(x)) * kPi) {}

  Value reflects;
  Value y;  // 1 - x below 1/2, otherwise x
  Value
      angle;  // pi x less the nearest multiple of pi: it has the tangent and, except for the sign, the sine
};

// Stirling's series from 8, the recurrence from 1/2, the reflection below 1/2.
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
  const Value is_zero = BitwiseOr(Eq(x, 1), Eq(x, 2));
  return Where(Eq(Abs(x), kInfinity), kInfinity, Where(is_zero, 0, reflected));
}

// The asymptotic series from 10, the recurrence from 1/2, the reflection below 1/2.
Value Psi(const Value& x) {
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
  const Value is_pole = BitwiseAnd(Le(x, 0), Eq(x, Floor(x)));
  return Where(Eq(x, 0), Copysign(kInfinity, -x), Where(is_pole, kNan, reflected));
}

// The formula of Euler and Maclaurin.
Value HurwitzZeta(const Value& s, const Value& q) {
  constexpr int kTerms = 20;
  // B_2j / (2j)!
  constexpr double kBernoulli[] = {1.0 / 12,          -1.0 / 720,
                                   1.0 / 30240,       -1.0 / 1209600,
                                   1.0 / 47900160,    -691.0 / 1307674368000,
                                   1.0 / 74724249600, -3617.0 / 10670622842880000};
  const Value power = -s;
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
  const Value is_whole = Eq(q, Floor(q)), is_negative = Le(q, 0);
  sum = Where(Eq(q, kInfinity), 0, sum);
  sum = Where(BitwiseAnd(is_negative, is_whole), kInfinity, sum);
  const Value is_root = BitwiseAnd(BitwiseAnd(is_negative, Ne(q, Floor(q))), Ne(s, Floor(s)));
  sum = Where(is_root, kNan, sum);
  sum = Where(Lt(s, 1), kNan, sum);
  return Where(Eq(s, 1), kInfinity, sum);
}

Value PolygammaOf(int64_t n, const Value& x) {
  if (n == 0) return Psi(x);
  const double order = static_cast<double>(n);
  if (n == 1) {
    const Reflection at(x);
    const Value value = HurwitzZeta(x * 0 + 2, at.y), cosecant = kPi / Sin(at.angle);
    return Where(at.reflects, cosecant * cosecant - value, value);
  }
  const double factorial = std::tgamma(order + 1);
  return HurwitzZeta(x * 0 + (order + 1), x) * (n % 2 == 0 ? -factorial : factorial);
}

// exp(-|x|) I_n(x) for the order n, 0 or 1: the power series below 25, the asymptotic series above.
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
  const Value finite = Where(Eq(size, kInfinity), 0, value);
  const Value valued = Where(Ne(x, x), x, finite);
  return order == 0 ? valued : valued * Sign(x);
}
Value BesselI0e(const Value& x) { return ScaledBessel(x, 0); }
Value BesselI1e(const Value& x) { return ScaledBessel(x, 1); }
// I_n(x). The exponential function is a square, because it exceeds float64 before I_n does.
Value Bessel(const Value& x, int order) {
  const Value size = Abs(x), root = Exp(size * 0.5);
  const Value limit = order == 0 ? size : x;
  return Where(Eq(size, kInfinity), limit, ScaledBessel(x, order) * root * root);
}
Value BesselI0(const Value& x) { return Bessel(x, 0); }
Value BesselI1(const Value& x) { return Bessel(x, 1); }

// The power series below 1/2.
Value SphericalJ0(const Value& x) {
  const Value series = Polynomial(x * x, {1.0 / 6227020800, -1.0 / 39916800, 1.0 / 362880,
                                          -1.0 / 5040, 1.0 / 120, -1.0 / 6, 1});
  const Value size = Abs(x), value = Where(Lt(size, 0.5), series, Sin(x) / x);
  return Where(Eq(size, kInfinity), 0, value);
}

Value SincOf(const Value& x) {
  const Value angle = x * kPi;
  return Where(Eq(x, 0), 1, Sin(angle) / angle);
}

Value EntropyOf(const Value& x) {
  const Value value = Where(Eq(x, 0), 0, -(x * Log(x)));
  return Where(Lt(x, 0), -kInfinity, value);
}

DType FloatDType(DType dtype) {
  return IsFloating(dtype) || IsComplex(dtype) ? dtype : DType::kFloat32;
}

// Returns false if an input is complex.
bool RequireReal(Formula& f) {
  for (const Value& input : f.inputs()) {
    if (IsComplex(input.dtype())) f.Fail("the inputs must be real");
  }
  return f.ok();
}

template <Value (*kFunction)(const Value&)>
void InFloat64(Formula& f) {
  if (!RequireReal(f)) return;
  const Value x = f.input(0);
  f.Return(kFunction(x.To(DType::kFloat64)).To(FloatDType(x.dtype())));
}

void Polygamma(Formula& f) {
  const int64_t n = f.attrs().Int("n");
  if (n < 0) return f.Fail("n must be at least 0");
  if (!RequireReal(f)) return;
  const Value x = f.input(0);
  f.Return(PolygammaOf(n, x.To(DType::kFloat64)).To(FloatDType(x.dtype())));
}

void Zeta(Formula& f) {
  if (!RequireReal(f)) return;
  const Value s = f.input(0), q = f.input(1);
  const DType dtype = FloatDType(PromotedDType({s, q}));
  f.Return(HurwitzZeta(s.To(DType::kFloat64), q.To(DType::kFloat64)).To(dtype));
}

// x function(y), and 0 where x is 0, unless y is NaN.
template <Value (*kFunction)(const Value&)>
void TimesLog(Formula& f) {
  if (!RequireReal(f)) return;
  const DType dtype = FloatDType(PromotedDType(f.inputs())), wide = WideDType(dtype);
  const Value x = f.input(0).To(wide), y = f.input(1).To(wide);
  const Value is_zero = BitwiseAnd(Eq(x, 0), Eq(y, y));
  f.Return(Where(is_zero, 0, x * kFunction(y)).To(dtype));
}

OpSchema OfOne(const char* name, const char* doc, void (*formula)(Formula&)) {
  return {.name = name,
          .signature = "(…) -> (…)",
          .doc = doc,
          .min_inputs = 1,
          .max_inputs = 1,
          .formula = formula};
}

OpSchema OfTwo(const char* name, const char* doc, void (*formula)(Formula&)) {
  return {.name = name,
          .signature = "(…), (…) -> (…) broadcast",
          .doc = doc,
          .min_inputs = 2,
          .max_inputs = 2,
          .formula = formula};
}

void AppendSpecialFunctions(std::vector<OpSchema>& ops) {
  ops.push_back(OfOne("lgamma", "log(abs(gamma(x))).", InFloat64<LogGamma>));
  ops.push_back(OfOne("digamma", "The derivative of lgamma.", InFloat64<Psi>));
  OpSchema polygamma = OfOne("polygamma", "The derivative of order n of digamma.", Polygamma);
  polygamma.attrs = {RequiredAttr("n", AttrType::kInt, "the order, at least 0")};
  ops.push_back(polygamma);
  ops.push_back(
      OfTwo("zeta", "Hurwitz's function: the sum of (q + k)^-s over k >= 0; s, q.", Zeta));
  ops.push_back(OfOne("i0", "The modified Bessel function of order 0.", InFloat64<BesselI0>));
  ops.push_back(OfOne("i0e", "exp(-abs(x)) i0(x).", InFloat64<BesselI0e>));
  ops.push_back(OfOne("i1", "The modified Bessel function of order 1.", InFloat64<BesselI1>));
  ops.push_back(OfOne("i1e", "exp(-abs(x)) i1(x).", InFloat64<BesselI1e>));
  ops.push_back(OfOne("spherical_bessel_j0", "sin(x) / x, and 1 at 0.", InFloat64<SphericalJ0>));
  ops.push_back(OfOne("sinc", "sin(pi x) / (pi x), and 1 at 0.", InFloat64<SincOf>));
  ops.push_back(OfOne("entr", "-x log(x), 0 at 0, and -inf below.", InFloat64<EntropyOf>));
  ops.push_back(OfTwo("xlogy", "x log(y), and 0 where x is 0 and y isn't NaN.", TimesLog<Log>));
  ops.push_back(
      OfTwo("xlog1py", "x log1p(y), and 0 where x is 0 and y isn't NaN.", TimesLog<Log1p>));
}

}  // namespace
}  // namespace formula

void AppendSpecialCompositions(std::vector<OpSchema>& ops) { formula::AppendSpecialFunctions(ops); }

}  // namespace tensord
