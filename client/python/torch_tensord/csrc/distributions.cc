// Random numbers of distributions with parameters that are tensors, and of rarer distributions.
// They are functions of uniform and normal numbers.
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
  c10::DimVector sizes = {kProposals};
  sizes.append(self.sizes().begin(), self.sizes().end());
  const Tensor many = at::empty(sizes, alpha.options());
  const Tensor x = NormalLike(many, generator), u = UniformLike(many, generator);
  const Tensor root = x.mul(c).add(1), v = root.mul(root).mul(root);
  const Tensor bound = x.mul(x).mul(0.5).add(d).sub(v.mul(d)).add(v.log().mul(d));
  const Tensor accepted = v.gt(0).logical_and(u.log().lt(bound));
  const Tensor first = accepted.to(at::kByte).argmax(0, true);
  const Tensor value = v.gather(0, first).squeeze(0).mul(d);
  const Tensor power = UniformLike(alpha, generator).log().div(alpha).exp();
  const Tensor result = at::where(small, value.mul(power), value);
  const double least = self.scalar_type() == at::kDouble ? std::numeric_limits<double>::min()
                                                         : std::numeric_limits<float>::min();
  return result.clamp_min(least).to(self.scalar_type());
}
Tensor SampleDirichlet(const Tensor& self, MaybeGenerator generator) {
  const Tensor gamma = StandardGamma(self, generator);
  return gamma.div(gamma.sum(-1, true));
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

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
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
  m.impl("rrelu_with_noise", RRelu);
  m.impl("rrelu_with_noise.out", RReluOut);
  m.impl("rrelu_with_noise_", RReluInPlace);
}

}  // namespace torch_tensord
