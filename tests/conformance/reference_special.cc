// References of the special functions. They call the C++ library, or sum the same series with other
// numbers of terms.
#include <cmath>
#include <vector>

#include "tensord/tests/conformance/reference_internal.h"

namespace tensord::conformance {
namespace {

constexpr Real kPi = 3.14159265358979323846264338327950288L;

// Returns the derivative of lgamma. Below 40, applies the recurrence. Then sums the asymptotic
// series with the coefficients B_2k / 2k = (-1)^(k+1) 2 (2k-1)! zeta(2k) / (2 pi)^2k, where
// std::riemann_zeta computes zeta.
Real Digamma(Real x) {
  if (std::isnan(x) || x == -kInfinity) return kNan;
  if (x == kInfinity) return x;
  if (x == 0) return std::copysign(kInfinity, -x);
  if (x < 0 && x == std::floor(x)) return kNan;
  if (x < 0) return Digamma(1 - x) - kPi / std::tan(kPi * (x - std::round(x)));
  Real sum = 0;
  while (x < 40) {
    sum -= 1 / x;
    x += 1;
  }
  sum += std::log(x) - 1 / (2 * x);
  static const std::vector<Real> coefficients = [] {
    std::vector<Real> made;
    for (int k = 1; k <= 12; ++k) {
      made.push_back((k % 2 == 1 ? 2 : -2) * std::tgamma(Real{2} * k) *
                     std::riemann_zeta(Real{2} * k) / std::pow(2 * kPi, Real{2} * k));
    }
    return made;
  }();
  Real power = 1;
  for (const Real coefficient : coefficients) {
    power /= x * x;
    sum -= coefficient * power;
  }
  return sum;
}

// Hurwitz's zeta function: terms up to 200, and four of the formula of Euler and Maclaurin.
Real Zeta(Real s, Real q) {
  if (s == 1) return kInfinity;
  if (s < 1 || std::isnan(q)) return kNan;
  if (q <= 0 && q == std::floor(q)) return kInfinity;
  if (std::isnan(s)) return kNan;
  if (q < 0 && s != std::floor(s)) return kNan;
  if (std::isinf(q)) return 0;
  Real sum = 0, w = q;
  while (w < 200) {
    sum += std::pow(w, -s);
    w += 1;
  }
  const Real last = std::pow(w, -s);
  return sum + last * (w / (s - 1) + Real{1} / 2 + s / (12 * w) -
                       s * (s + 1) * (s + 2) / (720 * w * w * w));
}

Real Polygamma(int64_t n, Real x) {
  if (n == 0) return Digamma(x);
  if (n == 1 && x < 0 && x != std::floor(x)) {
    const Real cosecant = kPi / std::sin(kPi * (x - std::floor(x)));
    return cosecant * cosecant - Polygamma(1, 1 - x);
  }
  const Real factorial = std::tgamma(static_cast<Real>(n) + 1);
  return (n % 2 == 0 ? -factorial : factorial) * Zeta(static_cast<Real>(n) + 1, x);
}

// The modified Bessel function of an order, 0 or 1, times exp(-|x|) if `scaled`.
Real Bessel(int order, bool scaled, Real x) {
  if (std::isnan(x)) return x;
  const Real size = std::abs(x), sign = order == 1 && x < 0 ? -1 : 1;
  if (size > 5000) {  // the asymptotic series
    const Real mu = 4 * order, first = (1 - mu) / (8 * size);
    const Real series = 1 + first + first * (9 - mu) / (16 * size);
    return scaled ? sign * series / std::sqrt(2 * kPi * size) : sign * kInfinity;
  }
  return sign * std::cyl_bessel_i(static_cast<Real>(order), size) * (scaled ? std::exp(-size) : 1);
}

Real Sinc(Real x) {
  if (std::isfinite(x) && x != 0 && x == std::floor(x)) return 0;
  return x == 0 ? 1 : std::sin(kPi * x) / (kPi * x);
}
Real SphericalBesselJ0(Real x) {
  if (std::isinf(x)) return 0;
  return x == 0 ? 1 : std::sin(x) / x;
}
Real Entropy(Real x) { return x < 0 ? -kInfinity : x == 0 ? 0 : -x * std::log(x); }

Real Xlogy(Real x, Real y) { return x == 0 && !std::isnan(y) ? 0 : x * std::log(y); }
Real Xlog1py(Real x, Real y) { return x == 0 && !std::isnan(y) ? 0 : x * std::log1p(y); }

DType ResultOf(DType dtype) { return IsFloating(dtype) ? dtype : DType::kFloat32; }

// The elements of x as real numbers.
std::vector<double> Reals(const Values& x) { return Cast(x, DType::kFloat64).real; }

ReferenceFunction OfOne(std::function<Real(const Attributes&, Real)> function) {
  return [function](const Attributes& attrs, Inputs inputs) {
    Values out = ScaledValues(ResultOf(inputs[0].spec.dtype), inputs[0].spec.shape);
    const std::vector<double> x = Reals(inputs[0]);
    for (int64_t i = 0; i < out.size(); ++i) {
      const Real value = function(attrs, x[i]);
      out.real[i] = static_cast<double>(value);
      out.scale[i] = FiniteOrZero(1 + std::abs(value));
    }
    return out;
  };
}

ReferenceFunction OfTwo(Real (*function)(Real, Real)) {
  return [function](const Attributes&, Inputs inputs) {
    Values out = ScaledValues(ResultOf(PromotedOf(inputs)),
                              Broadcast(inputs[0].spec.shape, inputs[1].spec.shape));
    const std::vector<double> a = Reals(inputs[0]), b = Reals(inputs[1]);
    for (int64_t i = 0; i < out.size(); ++i) {
      const Index index = Unravel(i, out.spec.shape);
      const Real x = a[RavelBroadcast(index, inputs[0].spec.shape)];
      const Real y = b[RavelBroadcast(index, inputs[1].spec.shape)];
      const Real value = function(x, y);
      out.real[i] = static_cast<double>(value);
      out.scale[i] = FiniteOrZero(1 + std::abs(value));
    }
    return out;
  };
}

}  // namespace

void AddSpecialReferences(ReferenceTable& table) {
  const auto one = [&table](const char* op, Real (*function)(Real)) {
    table[op] = OfOne([function](const Attributes&, Real x) { return function(x); });
  };
  one("lgamma", [](Real x) { return std::lgamma(x); });
  one("digamma", Digamma);
  one("i0", [](Real x) { return Bessel(0, false, x); });
  one("i0e", [](Real x) { return Bessel(0, true, x); });
  one("i1", [](Real x) { return Bessel(1, false, x); });
  one("i1e", [](Real x) { return Bessel(1, true, x); });
  one("sinc", Sinc);
  one("spherical_bessel_j0", SphericalBesselJ0);
  one("entr", Entropy);
  table["polygamma"] = OfOne(
      [](const Attributes& attrs, Real x) { return Polygamma(Get<int64_t>(attrs, "n", 0), x); });
  table["zeta"] = OfTwo(Zeta);
  table["xlogy"] = OfTwo(Xlogy);
  table["xlog1py"] = OfTwo(Xlog1py);
}

}  // namespace tensord::conformance
