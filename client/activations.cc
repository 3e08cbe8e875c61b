#include "tensord/client/activations.h"

#include <string>
#include <utility>

#include "tensord/client/internal/enqueue.h"

namespace tensord {
namespace {

Tensor Activate(absl::string_view op, const Tensor& x, const Attributes& attrs = {}) {
  const Tensor* inputs[] = {&x};
  return internal::Enqueue(op, inputs, attrs);
}

Tensor Differentiate(absl::string_view op, const Tensor& gradient, const Tensor& x,
                     const Attributes& attrs = {}) {
  const Tensor* inputs[] = {&gradient, &x};
  return internal::Enqueue(op, inputs, attrs);
}

Attributes ToAttrs(const SoftplusOptions& options) {
  return {{"beta", options.beta}, {"threshold", options.threshold}};
}

Attributes ToAttrs(const EluOptions& options) {
  return {{"alpha", options.alpha}, {"scale", options.scale}, {"input_scale", options.input_scale}};
}

}  // namespace

Tensor SigmoidBackward(const Tensor& gradient, const Tensor& y) {
  return Differentiate("sigmoid_backward", gradient, y);
}

Tensor TanhBackward(const Tensor& gradient, const Tensor& y) {
  return Differentiate("tanh_backward", gradient, y);
}

Tensor SiluBackward(const Tensor& gradient, const Tensor& x) {
  return Differentiate("silu_backward", gradient, x);
}

Tensor GeluBackward(const Tensor& gradient, const Tensor& x, GeluApproximation approximate) {
  const bool by_tanh = approximate == GeluApproximation::kTanh;
  return Differentiate("gelu_backward", gradient, x,
                       {{"approximate", std::string(by_tanh ? "tanh" : "none")}});
}

Tensor Softplus(const Tensor& x, const SoftplusOptions& options) {
  return Activate("softplus", x, ToAttrs(options));
}

Tensor SoftplusBackward(const Tensor& gradient, const Tensor& x, const SoftplusOptions& options) {
  return Differentiate("softplus_backward", gradient, x, ToAttrs(options));
}

Tensor Threshold(const Tensor& x, double threshold, double value) {
  return Activate("threshold", x, {{"threshold", threshold}, {"value", value}});
}

Tensor ThresholdBackward(const Tensor& gradient, const Tensor& x, double threshold) {
  return Differentiate("threshold_backward", gradient, x, {{"threshold", threshold}});
}

Tensor LeakyRelu(const Tensor& x, double negative_slope) {
  return Activate("leaky_relu", x, {{"negative_slope", negative_slope}});
}

Tensor LeakyReluBackward(const Tensor& gradient, const Tensor& x, double negative_slope) {
  return Differentiate("leaky_relu_backward", gradient, x, {{"negative_slope", negative_slope}});
}

Tensor Elu(const Tensor& x, const EluOptions& options) {
  return Activate("elu", x, ToAttrs(options));
}

Tensor EluBackward(const Tensor& gradient, const Tensor& x, const EluOptions& options) {
  return Differentiate("elu_backward", gradient, x, ToAttrs(options));
}

Tensor Hardtanh(const Tensor& x, double min, double max) {
  return Activate("hardtanh", x, {{"min", min}, {"max", max}});
}

Tensor HardtanhBackward(const Tensor& gradient, const Tensor& x, double min, double max) {
  return Differentiate("hardtanh_backward", gradient, x, {{"min", min}, {"max", max}});
}

Tensor Hardsigmoid(const Tensor& x) { return Activate("hardsigmoid", x); }

Tensor HardsigmoidBackward(const Tensor& gradient, const Tensor& x) {
  return Differentiate("hardsigmoid_backward", gradient, x);
}

Tensor Hardswish(const Tensor& x) { return Activate("hardswish", x); }

Tensor HardswishBackward(const Tensor& gradient, const Tensor& x) {
  return Differentiate("hardswish_backward", gradient, x);
}

Tensor Mish(const Tensor& x) { return Activate("mish", x); }

Tensor MishBackward(const Tensor& gradient, const Tensor& x) {
  return Differentiate("mish_backward", gradient, x);
}

Tensor LogSigmoid(const Tensor& x) { return Activate("log_sigmoid", x); }

Tensor LogSigmoidBackward(const Tensor& gradient, const Tensor& x) {
  return Differentiate("log_sigmoid_backward", gradient, x);
}

Tensor Logit(const Tensor& x, double eps) { return Activate("logit", x, {{"eps", eps}}); }

Tensor LogitBackward(const Tensor& gradient, const Tensor& x, double eps) {
  return Differentiate("logit_backward", gradient, x, {{"eps", eps}});
}

Tensor Softshrink(const Tensor& x, double lambd) {
  return Activate("softshrink", x, {{"lambd", lambd}});
}

Tensor Hardshrink(const Tensor& x, double lambd) {
  return Activate("hardshrink", x, {{"lambd", lambd}});
}

Tensor ShrinkBackward(const Tensor& gradient, const Tensor& x, double lambd) {
  return Differentiate("shrink_backward", gradient, x, {{"lambd", lambd}});
}

Tensor Prelu(const Tensor& x, const Tensor& weight) {
  const Tensor* inputs[] = {&x, &weight};
  return internal::Enqueue("prelu", inputs, {});
}

PreluGradients PreluBackward(const Tensor& gradient, const Tensor& x, const Tensor& weight) {
  const Tensor* inputs[] = {&gradient, &x, &weight};
  internal::Tensors outputs = internal::EnqueueAllOrFailed("prelu_backward", inputs, {}, 2);
  return {std::move(outputs[0]), std::move(outputs[1])};
}

Tensor Glu(const Tensor& x, int64_t axis) { return Activate("glu", x, {{"axis", axis}}); }

Tensor GluBackward(const Tensor& gradient, const Tensor& x, int64_t axis) {
  return Differentiate("glu_backward", gradient, x, {{"axis", axis}});
}

}  // namespace tensord
