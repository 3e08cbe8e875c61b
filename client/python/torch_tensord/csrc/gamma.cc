// The gamma function's logarithm, its derivatives, and random numbers of the gamma distribution, as
// compositions of PyTorch's ops in float64.
#include <ATen/ATen.h>
#include <ATen/native/Resize.h>
#include <torch/library.h>

#include <cmath>
#include <limits>

namespace torch_tensord {
namespace {

constexpr double kPi = 3.14159265358979323846;
constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
// The asymptotic series are used from here on. Smaller arguments are shifted by this number.
constexpr int kLarge = 8;

at::Tensor& Finish(const at::Tensor& result, at::Tensor& out) {
  if (!out.sizes().equals(result.sizes())) at::native::resize_output(out, result.sizes());
  return out.copy_(result);
}

// An argument x < 1/2 is reflected to 1 - x. An argument under kLarge is shifted by kLarge.
struct Argument {
  at::Tensor x;          // float64
  at::Tensor reflected;  // bool
  at::Tensor rest;       // x - round(x): sin(pi x) and tan(pi x) depend only on it
  at::Tensor small;      // bool
  at::Tensor y;          // the reflected argument, at most kLarge
  at::Tensor z;          // the reflected and shifted argument
};

Argument Prepare(const at::Tensor& self) {
  Argument a;
  a.x = self.to(at::kDouble);
  a.reflected = a.x.lt(0.5);
  a.rest = a.x - a.x.round();
  const at::Tensor y = at::where(a.reflected, 1 - a.x, a.x);
  a.small = y.lt(kLarge);
  a.y = y.clamp_max(kLarge);
  a.z = at::where(a.small, y + kLarge, y);
  return a;
}

// Returns c0 t + c1 t² + …, where t = 1 / z².
at::Tensor Series(const at::Tensor& z, std::initializer_list<double> coefficients) {
  const at::Tensor t = z.square().reciprocal();
  at::Tensor sum = at::zeros_like(t);
  for (auto c = std::rbegin(coefficients); c != std::rend(coefficients); ++c) sum = (sum + *c) * t;
  return sum;
}

// Stirling's series (Abramowitz and Stegun, 6.1.41), and the reflection formula (6.1.17).
at::Tensor& LgammaOut(const at::Tensor& self, at::Tensor& out) {
  const Argument a = Prepare(self);
  const at::Tensor series =
      Series(a.z, {1. / 12, -1. / 360, 1. / 1260, -1. / 1680, 1. / 1188, -691. / 360360, 1. / 156});
  at::Tensor log = (a.z - 0.5) * a.z.log() - a.z + 0.5 * std::log(2 * kPi) + series * a.z;
  at::Tensor product = a.y;
  for (int k = 1; k < kLarge; ++k) product = product * (a.y + k);
  log = at::where(a.small, log - product.log(), log);
  log = at::where(a.reflected, std::log(kPi) - (a.rest * kPi).sin().abs().log() - log, log);
  return Finish(log.masked_fill(a.x.isinf(), kInf), out);
}

// Abramowitz and Stegun, 6.3.18 and 6.3.7.
at::Tensor& DigammaOut(const at::Tensor& self, at::Tensor& out) {
  const Argument a = Prepare(self);
  const at::Tensor series =
      Series(a.z, {-1. / 12, 1. / 120, -1. / 252, 1. / 240, -1. / 132, 691. / 32760, -1. / 12});
  const at::Tensor log = a.z.log() - 0.5 / a.z + series;
  at::Tensor sum = a.y.reciprocal();
  for (int k = 1; k < kLarge; ++k) sum = sum + (a.y + k).reciprocal();
  at::Tensor psi = at::where(a.small, log - sum, log);
  psi = at::where(a.reflected, psi - kPi / (a.rest * kPi).tan(), psi);
  psi = at::where(a.x.eq(0), -a.x.reciprocal(), psi);
  const at::Tensor pole = a.rest.eq(0).logical_and(a.x.lt(0)).logical_or(a.x.eq(-kInf));
  return Finish(psi.masked_fill(pole, kNan), out);
}

// Abramowitz and Stegun, 6.4.12 and 6.4.7.
at::Tensor Trigamma(const at::Tensor& self) {
  const Argument a = Prepare(self);
  const at::Tensor series =
      Series(a.z, {1. / 6, -1. / 30, 1. / 42, -1. / 30, 5. / 66, -691. / 2730, 7. / 6});
  const at::Tensor tail = (1 + 0.5 / a.z + series) / a.z;
  at::Tensor sum = a.y.square().reciprocal();
  for (int k = 1; k < kLarge; ++k) sum = sum + (a.y + k).square().reciprocal();
  const at::Tensor psi = at::where(a.small, tail + sum, tail);
  const at::Tensor slope = (kPi / (a.rest * kPi).sin()).square();
  return at::where(a.reflected, slope - psi, psi);
}

at::Tensor& PolygammaOut(int64_t n, const at::Tensor& self, at::Tensor& out) {
  TORCH_CHECK(n >= 0, "polygamma(n, x) does not support negative n.");
  if (n == 0) return DigammaOut(self, out);
  TORCH_CHECK_NOT_IMPLEMENTED(n == 1, "polygamma(", n,
                              ", x) isn't implemented on tensord: only n = 0 and 1 are");
  return Finish(Trigamma(self), out);
}

// The method of Marsaglia and Tsang (2000) accepts a proposal with a probability of at least 0.95.
// Of 8 proposals, the first that is accepted counts. In 1 of 10¹⁰ cases none is, and the last counts.
at::Tensor StandardGamma(const at::Tensor& self, std::optional<at::Generator> generator) {
  constexpr int kProposals = 8;
  at::Tensor alpha = self.to(at::kDouble);
  const at::Tensor below_one = alpha.lt(1);
  const at::Tensor d = at::where(below_one, alpha + 1, alpha) - 1. / 3;
  const at::Tensor c = (9 * d).rsqrt();
  at::DimVector sizes = {kProposals + 1};
  sizes.append(self.sizes().begin(), self.sizes().end());
  const at::Tensor normal = at::empty(sizes, alpha.options()).normal_(0, 1, generator);
  // In (0, 1].
  const at::Tensor uniform = 1 - at::empty(sizes, alpha.options()).uniform_(0, 1, generator);
  at::Tensor result;
  for (int i = kProposals - 1; i >= 0; --i) {
    const at::Tensor x = normal.select(0, i), base = 1 + c * x, v = base * base * base;
    const at::Tensor limit = 0.5 * x * x + d - d * v + d * v.clamp_min(1e-300).log();
    const at::Tensor accepted = base.gt(0).logical_and(uniform.select(0, i).log().lt(limit));
    const at::Tensor draw = d * v.clamp_min(1e-300);
    result = result.defined() ? at::where(accepted, draw, result) : draw;
  }
  const at::Tensor power = (uniform.select(0, kProposals).log() / alpha).exp();
  result = at::where(below_one, result * power, result).to(self.scalar_type());
  // A sample is positive, as PyTorch's.
  const double tiny = self.scalar_type() == at::kDouble ? std::numeric_limits<double>::min()
                      : self.scalar_type() == at::kHalf ? 6.103515625e-05
                                                        : std::numeric_limits<float>::min();
  return result.clamp_min(tiny);
}

at::Tensor SampleDirichlet(const at::Tensor& self, std::optional<at::Generator> generator) {
  const at::Tensor draws = StandardGamma(self.to(at::kDouble), std::move(generator));
  return (draws / draws.sum(-1, true)).to(self.scalar_type());
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("lgamma.out", LgammaOut);
  m.impl("digamma.out", DigammaOut);
  m.impl("polygamma.out", PolygammaOut);
  m.impl("_standard_gamma", StandardGamma);
  m.impl("_sample_dirichlet", SampleDirichlet);
}

}  // namespace torch_tensord
