// Random numbers of distributions with parameters that are tensors, and of rarer distributions.
// They are functions of uniform and normal numbers.
#include <ATen/ops/_dirichlet_grad.h>
#include <ATen/ops/_standard_gamma_grad.h>

#include <cmath>
#include <limits>

#include "kernels.h"
#include "value_errors.h"

namespace torch_tensord {
namespace {

using at::Tensor;
using MaybeGenerator = std::optional<at::Generator>;

// Returns normal numbers of the shape and dtype of `like`.
Tensor NormalLike(const Tensor& like, const MaybeGenerator& generator) {
  return at::empty(like.sizes(), like.options()).normal_(0, 1, generator);
}
// Returns uniform numbers above 0 and up to 1.
Tensor UniformLike(const Tensor& like, const MaybeGenerator& generator) {
  return at::empty(like.sizes(), like.options()).uniform_(0, 1, generator).neg_().add_(1);
}

void CheckDeviation(double deviation) {
  TORCH_CHECK(deviation >= 0, "normal expects std >= 0.0, but found std ", deviation);
}
Tensor NormalTensorFloat(const Tensor& mean, double deviation, MaybeGenerator generator) {
  CheckDeviation(deviation);
  return NormalLike(mean, generator).mul_(deviation).add_(mean);
}
// Returns `deviation`. If one of its elements is negative, the returned tensor has an error.
Tensor CheckDeviations(const Tensor& deviation) {
  if (deviation.numel() == 0 || !IsOurs(deviation)) return deviation;
  const Value value = Read(deviation);
  return MakeTensor(Require(value, {{AllAtLeast(value, 0), Rule::kNormalDeviation}}),
                    DeviceOf(deviation));
}
Tensor NormalFloatTensor(double mean, const Tensor& deviation, MaybeGenerator generator) {
  return NormalLike(deviation, generator).mul_(CheckDeviations(deviation)).add_(mean);
}
Tensor NormalTensorTensor(const Tensor& mean, const Tensor& deviation, MaybeGenerator generator) {
  CommonDevice("normal", {&mean, &deviation});
  const auto both = at::broadcast_tensors({mean, CheckDeviations(deviation)});
  return NormalLike(both[0], generator).mul_(both[1]).add_(both[0]);
}
Tensor& NormalTensorFloatOut(const Tensor& mean, double deviation, MaybeGenerator generator,
                             Tensor& out) {
  return CopyToOut(out, NormalTensorFloat(mean, deviation, generator));
}
Tensor& NormalFloatTensorOut(double mean, const Tensor& deviation, MaybeGenerator generator,
                             Tensor& out) {
  return CopyToOut(out, NormalFloatTensor(mean, deviation, generator));
}
Tensor& NormalTensorTensorOut(const Tensor& mean, const Tensor& deviation, MaybeGenerator generator,
                              Tensor& out) {
  return CopyToOut(out, NormalTensorTensor(mean, deviation, generator));
}

Tensor& LogNormal(Tensor& self, double mean, double deviation, MaybeGenerator generator) {
  TORCH_CHECK(deviation > 0, "log_normal_ expects std > 0.0, but found std=", deviation);
  return self.normal_(mean, deviation, generator).exp_();
}
Tensor& Cauchy(Tensor& self, double median, double sigma, MaybeGenerator generator) {
  TORCH_CHECK(sigma > 0, "cauchy_ expects sigma > 0.0, but found sigma=", sigma);
  TORCH_CHECK(at::isFloatingType(self.scalar_type()), "cauchy_ needs a floating dtype");
  const Tensor u = UniformLike(self, generator);
  return self.copy_(u.sub_(0.5).mul_(M_PI).tan_().mul_(sigma).add_(median));
}
Tensor& Geometric(Tensor& self, double p, MaybeGenerator generator) {
  TORCH_CHECK(0 < p && p < 1, "geometric_ expects p to be in (0, 1), but got p=", p);
  const Tensor u =
      at::empty(self.sizes(), self.options().dtype(at::kDouble)).uniform_(0, 1, generator);
  return self.copy_(u.neg_().log1p_().div_(std::log1p(-p)).ceil_().clamp_min_(1));
}

// Returns an uninitialized tensor: a new first axis of size `count`, then the axes of `like`.
Tensor EmptyStack(int64_t count, const Tensor& like) {
  c10::DimVector sizes = {count};
  sizes.append(like.sizes().begin(), like.sizes().end());
  return at::empty(sizes, like.options());
}
// Returns the first accepted proposal of each element. If none is accepted, returns the first one.
Tensor FirstAccepted(const Tensor& proposals, const Tensor& accepted) {
  return proposals.gather(0, accepted.to(at::kByte).argmax(0, true)).squeeze(0);
}

// Return the least positive normal number of a dtype, and the distance from 1 to the next number.
double LeastNormal(at::ScalarType dtype) {
  if (dtype == at::kDouble) return std::numeric_limits<double>::min();
  return dtype == at::kHalf ? std::ldexp(1.0, -14) : std::numeric_limits<float>::min();
}
double EpsilonOf(at::ScalarType dtype) {
  if (dtype == at::kDouble) return std::numeric_limits<double>::epsilon();
  if (dtype == at::kHalf) return std::ldexp(1.0, -10);
  return dtype == at::kBFloat16 ? std::ldexp(1.0, -7) : std::numeric_limits<float>::epsilon();
}

// Samples by the method of Marsaglia and Tsang: makes kProposals proposals for each element, and
// takes the first accepted one. More than 95 of 100 proposals are accepted, so the probability that
// all are rejected is below 1e-20.
Tensor StandardGamma(const Tensor& self, MaybeGenerator generator) {
  constexpr int64_t kProposals = 16;
  const Tensor alpha = self.to(at::kDouble);
  const Tensor small = alpha.lt(1);
  // Γ(α) = Γ(α + 1)·U^(1/α)
  const Tensor shape = at::where(small, alpha.add(1), alpha);
  const Tensor d = shape.sub(1.0 / 3), c = d.mul(9).rsqrt();
  const Tensor many = EmptyStack(kProposals, alpha);
  const Tensor x = NormalLike(many, generator), u = UniformLike(many, generator);
  const Tensor root = x.mul(c).add(1), v = root.mul(root).mul(root);
  const Tensor bound = x.mul(x).mul(0.5).add(d).sub(v.mul(d)).add(v.log().mul(d));
  const Tensor accepted = v.gt(0).logical_and(u.log().lt(bound));
  const Tensor value = FirstAccepted(v, accepted).mul(d);
  const Tensor power = UniformLike(alpha, generator).log().div(alpha).exp();
  const Tensor result = at::where(small, value.mul(power), value);
  return result.clamp_min(LeastNormal(self.scalar_type())).to(self.scalar_type());
}
Tensor SampleDirichlet(const Tensor& self, MaybeGenerator generator) {
  const Tensor gamma = StandardGamma(self.to(at::kDouble), generator);
  const Tensor samples = gamma.div(gamma.sum(-1, true));
  // As on the CPU, a sample is a normal number below 1.
  const at::ScalarType dtype = self.scalar_type();
  return samples.clamp(LeastNormal(dtype), 1 - EpsilonOf(dtype) / 2).to(dtype);
}

// The derivatives of samples by the parameters (Figurnov et al., Implicit Reparameterization
// Gradients, 2018). PyTorch approximates them piece by piece, so this machine's CPU computes them.
// Waits.
Tensor StandardGammaGrad(const Tensor& alpha, const Tensor& sample) {
  return at::_standard_gamma_grad(alpha.cpu(), sample.cpu()).to(sample.device());
}
Tensor DirichletGrad(const Tensor& sample, const Tensor& alpha, const Tensor& total) {
  return at::_dirichlet_grad(sample.cpu(), alpha.cpu(), total.cpu()).to(sample.device());
}

// ---- numbers of events

// If fewer events than this are expected, the op samples the waiting times between events, and
// counts the events that come in time. Otherwise, it samples the count by transformed rejection.
constexpr double kManyEvents = 10;
// If fewer than kManyEvents are expected, the probability of more than kMaxEvents is below 1e-16.
constexpr int64_t kMaxEvents = 48;
// More than 70 of 100 proposals are accepted, so the probability that all are rejected is below
// 1e-12.
constexpr int64_t kEventProposals = 24;

// Proposals of transformed rejection. The first axis of each tensor is kEventProposals.
struct EventProposals {
  Tensor k;           // the proposed counts
  Tensor accepted;    // bool: the squeeze accepts k, so the density needn't be compared
  Tensor log_height;  // log(v / (a/us² + b)), to compare with the logarithm of the density at k
};
// The hat has the scales `a` and `b`, and the center `center`. `squeeze` bounds v.
EventProposals ProposeEvents(const Tensor& a, const Tensor& b, const Tensor& center,
                             const Tensor& squeeze, const MaybeGenerator& generator) {
  const Tensor many = EmptyStack(kEventProposals, a);
  const Tensor u = UniformLike(many, generator).sub_(0.5), v = UniformLike(many, generator);
  const Tensor us = u.abs().neg_().add_(0.5);
  const Tensor k = a.mul(2).div(us).add(b).mul(u).add(center).floor();
  return {k, us.ge(0.07).logical_and(v.le(squeeze)), v.log().sub(a.div(us.mul(us)).add(b).log())};
}

// Samples by Hörmann, "The transformed rejection method for generating Poisson random variables",
// 1993, algorithm PTRS.
Tensor SampleManyPoisson(const Tensor& rate, const MaybeGenerator& generator) {
  const Tensor b = rate.sqrt().mul(2.53).add(0.931), a = b.mul(0.02483).sub(0.059);
  const Tensor log_alpha = b.sub(3.4).reciprocal().mul(1.1328).add(1.1239).log();
  const Tensor squeeze = b.sub(2).reciprocal().mul(-3.6224).add(0.9277);
  const EventProposals made = ProposeEvents(a, b, rate.add(0.43), squeeze, generator);
  const Tensor density = made.k.mul(rate.log()).sub(rate).sub(made.k.add(1).lgamma());
  const Tensor fits = made.log_height.add(log_alpha).le(density);
  return FirstAccepted(made.k, made.accepted.logical_or(made.k.ge(0).logical_and(fits)));
}
Tensor Poisson(const Tensor& self, MaybeGenerator generator) {
  if (self.numel() == 0) return at::empty_like(self);
  Tensor rate = self;
  if (IsOurs(self)) {
    const Value value = Read(self);
    rate = MakeTensor(Require(value, {{AllAtLeast(value, 0), Rule::kPoissonRate}}), DeviceOf(self));
  }
  rate = rate.to(at::kDouble);
  const Tensor waits = UniformLike(EmptyStack(kMaxEvents, rate), generator).log_().neg_();
  const Tensor few = waits.cumsum(0).le(rate).sum(0).to(at::kDouble);
  const Tensor many = SampleManyPoisson(rate.clamp_min(kManyEvents), generator);
  return at::where(rate.lt(kManyEvents), few, many).to(self.scalar_type());
}

// Samples by Hörmann, "The generation of binomial random variates", 1993, algorithm BTRS. `p`
// is at most 1/2.
Tensor SampleManyBinomial(const Tensor& n, const Tensor& p, const MaybeGenerator& generator) {
  const Tensor q = p.neg().add(1), deviation = n.mul(p).mul(q).sqrt(), odds = p.div(q);
  const Tensor b = deviation.mul(2.53).add(1.15), a = b.mul(0.0248).add(p.mul(0.01)).sub(0.0873);
  const Tensor log_alpha = b.reciprocal().mul(5.1).add(2.83).mul(deviation).log();
  const Tensor squeeze = b.reciprocal().mul(-4.2).add(0.92);
  const EventProposals made = ProposeEvents(a, b, n.mul(p).add(0.5), squeeze, generator);
  const Tensor mode = n.add(1).mul(p).floor();
  const auto log_ways = [&n](const Tensor& k) {
    return k.add(1).lgamma().add(n.sub(k).add(1).lgamma()).neg();
  };
  const Tensor k = at::minimum(made.k.clamp_min(0), n);
  const Tensor density = log_ways(k).sub(log_ways(mode)).add(k.sub(mode).mul(odds.log()));
  const Tensor fits = made.k.eq(k).logical_and(made.log_height.add(log_alpha).le(density));
  return FirstAccepted(k, made.accepted.logical_or(fits));
}
Tensor Binomial(const Tensor& count, const Tensor& prob, MaybeGenerator generator) {
  CommonDevice("binomial", {&count, &prob});
  TORCH_CHECK(at::isFloatingType(count.scalar_type()) && count.scalar_type() == prob.scalar_type(),
              "binomial needs a count and a prob of the same floating dtype, but got ",
              count.scalar_type(), " and ", prob.scalar_type());
  // As on the CPU, a count below 0 is taken as 0, and a probability outside [0, 1] as 0 or 1.
  const auto both =
      at::broadcast_tensors({count.to(at::kDouble).clamp_min(0), prob.to(at::kDouble).clamp(0, 1)});
  const Tensor &n = both[0], flipped = both[1].gt(0.5);
  if (n.numel() == 0) return at::empty(n.sizes(), count.options());
  const Tensor p = at::where(flipped, both[1].neg().add(1), both[1]);
  // The number of trials from one success to the next has a geometric distribution.
  const Tensor u = UniformLike(EmptyStack(kMaxEvents, p.contiguous()), generator);
  const Tensor trials = u.log_().div(p.neg().log1p()).floor_().add_(1);
  const Tensor few = trials.cumsum(0).le(n).sum(0).to(at::kDouble);
  const Tensor is_few = n.mul(p).lt(kManyEvents);
  const Tensor many = SampleManyBinomial(at::where(is_few, at::full_like(n, 4 * kManyEvents), n),
                                         at::where(is_few, at::full_like(p, 0.5), p), generator);
  const Tensor successes = at::where(is_few, few, many);
  return at::where(flipped, n.sub(successes), successes).to(count.scalar_type());
}

// ---- the leaky ReLU with random slopes

Tensor& RReluOut(const Tensor& self, Tensor& noise, const at::Scalar& lower,
                 const at::Scalar& upper, bool training, MaybeGenerator generator, Tensor& out) {
  CommonDevice("rrelu_with_noise", {&self, &noise});
  const double low = lower.toDouble(), high = upper.toDouble();
  if (!training) return CopyToOut(out, at::leaky_relu(self, (low + high) / 2));
  const Tensor slopes = at::empty(self.sizes(), self.options()).uniform_(low, high, generator);
  CopyToOut(noise, at::where(self.le(0), slopes, at::ones_like(slopes)));
  return CopyToOut(out, self.mul(noise));
}
Tensor RRelu(const Tensor& self, Tensor& noise, const at::Scalar& lower, const at::Scalar& upper,
             bool training, MaybeGenerator generator) {
  Tensor out = at::empty_like(self);
  return RReluOut(self, noise, lower, upper, training, std::move(generator), out);
}
Tensor& RReluInPlace(Tensor& self, Tensor& noise, const at::Scalar& lower, const at::Scalar& upper,
                     bool training, MaybeGenerator generator) {
  return RReluOut(self, noise, lower, upper, training, std::move(generator), self);
}

}  // namespace

TENSORD_KERNELS(m) {
  m.impl("normal.Tensor_float", NormalTensorFloat);
  m.impl("normal.float_Tensor", NormalFloatTensor);
  m.impl("normal.Tensor_Tensor", NormalTensorTensor);
  m.impl("normal.Tensor_float_out", NormalTensorFloatOut);
  m.impl("normal.float_Tensor_out", NormalFloatTensorOut);
  m.impl("normal.Tensor_Tensor_out", NormalTensorTensorOut);
  m.impl("log_normal_", LogNormal);
  m.impl("cauchy_", Cauchy);
  m.impl("geometric_", Geometric);
  m.impl("_standard_gamma", StandardGamma);
  m.impl("_sample_dirichlet", SampleDirichlet);
  m.impl("_standard_gamma_grad", StandardGammaGrad);
  m.impl("_dirichlet_grad", DirichletGrad);
  m.impl("poisson", Poisson);
  m.impl("binomial", Binomial);
  m.impl("rrelu_with_noise", RRelu);
  m.impl("rrelu_with_noise.out", RReluOut);
  m.impl("rrelu_with_noise_", RReluInPlace);
}

}  // namespace torch_tensord
