// Activations and their gradients: ops of the server (common/ops/compositions/activations.cc).
#include <utility>

#include "kernels.h"

namespace torch_tensord {

const char* GeluKind(c10::string_view approximate) {
  TORCH_CHECK(approximate == "tanh" || approximate == "none",
              "approximate argument must be either none or tanh.");
  return approximate == "tanh" ? "tanh" : "none";
}

namespace {

at::Tensor MakeResult(const at::Tensor& a, const at::Tensor& b) {
  return MakeElementwise({&a, &b}, a.scalar_type(), DeviceOf(a));
}

void CheckFloating(const char* name, const at::Tensor& x) {
  TORCH_CHECK_NOT_IMPLEMENTED(at::isFloatingType(x.scalar_type()), name, " isn't implemented for ",
                              x.scalar_type());
}

// Computes out = op(self).
at::Tensor& Unary(const char* op, const at::Tensor& self, const at::Tensor& out, Attrs attrs = {}) {
  CheckFloating(op, self);
  Resize(out, self.sizes());
  Elementwise(op, out, {&self}, self.scalar_type(),
              [&](const Inputs& in) { return Push(op, {in[0]}, attrs); });
  return const_cast<at::Tensor&>(out);
}
// Computes out = op(gradient, x).
at::Tensor& Backward(const char* op, const at::Tensor& gradient, const at::Tensor& x,
                     const at::Tensor& out, Attrs attrs = {}) {
  CheckFloating(op, x);
  ResizeBroadcast(out, x, gradient);
  const at::ScalarType dtype = x.scalar_type();
  Elementwise(op, out, {&gradient, &x},
              gradient.scalar_type() == dtype ? dtype : ComputeDType(dtype), [&](const Inputs& in) {
                return Push(op, {in[0], in[1]}, attrs);
              });
  return const_cast<at::Tensor&>(out);
}

// ---- gelu

at::Tensor& GeluOut(const at::Tensor& self, c10::string_view approximate, at::Tensor& out) {
  Resize(out, self.sizes());
  const char* const name = GeluKind(approximate);
  Elementwise("gelu", out, {&self}, self.scalar_type(), [&](const Inputs& in) {
    return Push("gelu", {in[0]}, {{"approximate", name}});
  });
  return out;
}
at::Tensor& GeluBackwardOut(const at::Tensor& gradient, const at::Tensor& self,
                            c10::string_view approximate, at::Tensor& out) {
  return Backward("gelu_backward", gradient, self, out, {{"approximate", GeluKind(approximate)}});
}

// ---- gradients by the result or the input

at::Tensor& SigmoidBackwardOut(const at::Tensor& gradient, const at::Tensor& output,
                               at::Tensor& out) {
  return Backward("sigmoid_backward", gradient, output, out);
}
at::Tensor& TanhBackwardOut(const at::Tensor& gradient, const at::Tensor& output, at::Tensor& out) {
  return Backward("tanh_backward", gradient, output, out);
}
at::Tensor& SiluBackwardOut(const at::Tensor& gradient, const at::Tensor& self, at::Tensor& out) {
  return Backward("silu_backward", gradient, self, out);
}

// Without this function, PyTorch runs nine ops for the gradient.
at::Tensor SiluBackward(const at::Tensor& gradient, const at::Tensor& self) {
  return Backward("silu_backward", gradient, self, MakeResult(self, gradient));
}

// ---- by a threshold

// Returns `number` as an attribute of an op on `dtype`. If `dtype` is an integer, truncates the
// number. If `dtype` is uint8, returns the number modulo 256. PyTorch does the same.
at::Scalar InDType(const at::Scalar& number, at::ScalarType dtype) {
  if (at::isFloatingType(dtype)) return number.toDouble();
  if (dtype == at::kByte) return static_cast<int64_t>(static_cast<uint8_t>(number.toLong()));
  return number.toLong();
}
at::Tensor& ThresholdOut(const at::Tensor& self, const at::Scalar& threshold,
                         const at::Scalar& value, at::Tensor& out) {
  const at::ScalarType dtype = self.scalar_type();
  TORCH_CHECK_NOT_IMPLEMENTED(dtype != at::kBool, "threshold isn't implemented for bool");
  Checked(threshold, ComputeDType(dtype));
  Checked(value, dtype);
  Resize(out, self.sizes());
  // PyTorch allows an output whose elements share memory: all get the same number.
  Elementwise("threshold", WithoutRepeats(out), {&self}, dtype, [&](const Inputs& in) {
    return Push("threshold", {in[0]},
                {{"threshold", InDType(threshold, dtype)}, {"value", InDType(value, dtype)}});
  });
  return out;
}
at::Tensor& ThresholdBackwardOut(const at::Tensor& gradient, const at::Tensor& self,
                                 const at::Scalar& threshold, at::Tensor& out) {
  const at::ScalarType dtype = self.scalar_type();
  ResizeBroadcast(out, self, gradient);
  Elementwise("threshold_backward", out, {&gradient, &self}, dtype, [&](const Inputs& in) {
    return Push("threshold_backward", {in[0], in[1]}, {{"threshold", InDType(threshold, dtype)}});
  });
  return out;
}
// Throws PyTorch's error if the dtype in which `self` is computed can't represent a number.
void CheckNumbers(const at::Tensor& self, std::initializer_list<at::Scalar> numbers) {
  if (!at::isFloatingType(self.scalar_type())) return;
  for (const at::Scalar& number : numbers) Checked(number, ComputeDType(self.scalar_type()));
}
at::Tensor& LeakyReluOut(const at::Tensor& self, const at::Scalar& slope, at::Tensor& out) {
  CheckNumbers(self, {slope});
  return Unary("leaky_relu", self, out, {{"negative_slope", slope.toDouble()}});
}
at::Tensor& LeakyReluBackwardOut(const at::Tensor& gradient, const at::Tensor& self,
                                 const at::Scalar& slope, bool, at::Tensor& out) {
  return Backward("leaky_relu_backward", gradient, self, out,
                  {{"negative_slope", slope.toDouble()}});
}
at::Tensor& EluOut(const at::Tensor& self, const at::Scalar& alpha, const at::Scalar& scale,
                   const at::Scalar& input_scale, at::Tensor& out) {
  CheckNumbers(self, {alpha, scale, input_scale});
  return Unary("elu", self, out,
               {{"alpha", alpha.toDouble()},
                {"scale", scale.toDouble()},
                {"input_scale", input_scale.toDouble()}});
}
at::Tensor& EluBackwardOut(const at::Tensor& gradient, const at::Scalar& alpha,
                           const at::Scalar& scale, const at::Scalar& input_scale, bool is_result,
                           const at::Tensor& self, at::Tensor& out) {
  return Backward("elu_backward", gradient, self, out,
                  {{"alpha", alpha.toDouble()},
                   {"scale", scale.toDouble()},
                   {"input_scale", input_scale.toDouble()},
                   {"by_result", is_result}});
}
at::Tensor& SoftplusOut(const at::Tensor& self, const at::Scalar& beta, const at::Scalar& threshold,
                        at::Tensor& out) {
  CheckNumbers(self, {beta, threshold});
  return Unary("softplus", self, out,
               {{"beta", beta.toDouble()}, {"threshold", threshold.toDouble()}});
}
at::Tensor& SoftplusBackwardOut(const at::Tensor& gradient, const at::Tensor& self,
                                const at::Scalar& beta, const at::Scalar& threshold,
                                at::Tensor& out) {
  return Backward("softplus_backward", gradient, self, out,
                  {{"beta", beta.toDouble()}, {"threshold", threshold.toDouble()}});
}
// The limits of hardtanh are numbers of the dtype's kind, so they don't change the dtype.
std::pair<at::Scalar, at::Scalar> HardtanhLimits(const at::Tensor& self, const at::Scalar& low,
                                                 const at::Scalar& high) {
  TORCH_CHECK_NOT_IMPLEMENTED(self.scalar_type() != at::kBool,
                              "hardtanh isn't implemented for bool");
  if (at::isFloatingType(self.scalar_type())) return {low, high};
  return {low.toLong(), high.toLong()};
}
at::Tensor& HardtanhOut(const at::Tensor& self, const at::Scalar& low, const at::Scalar& high,
                        at::Tensor& out) {
  const auto [least, greatest] = HardtanhLimits(self, low, high);
  return at::clamp_out(out, self, least, greatest);
}
at::Tensor Hardtanh(const at::Tensor& self, const at::Scalar& low, const at::Scalar& high) {
  const auto [least, greatest] = HardtanhLimits(self, low, high);
  return at::clamp(self, least, greatest);
}
at::Tensor& HardtanhInPlace(at::Tensor& self, const at::Scalar& low, const at::Scalar& high) {
  const auto [least, greatest] = HardtanhLimits(self, low, high);
  return at::clamp_(self, least, greatest);
}
at::Tensor HardtanhBackward(const at::Tensor& gradient, const at::Tensor& self,
                            const at::Scalar& low, const at::Scalar& high) {
  return Backward(
      "hardtanh_backward", gradient, self, MakeResult(self, gradient),
      {{"min", InDType(low, self.scalar_type())}, {"max", InDType(high, self.scalar_type())}});
}
at::Tensor& HardsigmoidOut(const at::Tensor& self, at::Tensor& out) {
  return Unary("hardsigmoid", self, out);
}
at::Tensor& HardsigmoidBackwardOut(const at::Tensor& gradient, const at::Tensor& self,
                                   at::Tensor& out) {
  return Backward("hardsigmoid_backward", gradient, self, out);
}
at::Tensor& HardswishOut(const at::Tensor& self, at::Tensor& out) {
  return Unary("hardswish", self, out);
}
at::Tensor Hardswish(const at::Tensor& self) {
  at::Tensor out = MakeLike(self);
  return HardswishOut(self, out);
}
at::Tensor& HardswishInPlace(at::Tensor& self) { return HardswishOut(self, self); }
at::Tensor HardswishBackward(const at::Tensor& gradient, const at::Tensor& self) {
  return Backward("hardswish_backward", gradient, self, MakeResult(self, gradient));
}

// ---- smooth ones

at::Tensor& MishOut(const at::Tensor& self, at::Tensor& out) { return Unary("mish", self, out); }
at::Tensor MishBackward(const at::Tensor& gradient, const at::Tensor& self) {
  return Backward("mish_backward", gradient, self, MakeResult(self, gradient));
}
std::tuple<at::Tensor, at::Tensor> LogSigmoid(const at::Tensor& self) {
  at::Tensor out = MakeLike(self);
  Unary("log_sigmoid", self, out);
  return {out, MakeContiguous({0}, self.scalar_type(), DeviceOf(self))};
}
at::Tensor LogSigmoidBackward(const at::Tensor& gradient, const at::Tensor& self,
                              const at::Tensor&) {
  return Backward("log_sigmoid_backward", gradient, self, MakeResult(self, gradient));
}
at::Tensor& LogitOut(const at::Tensor& self, std::optional<double> eps, at::Tensor& out) {
  const at::ScalarType dtype = FloatDType(self.scalar_type());
  if (eps.has_value()) Checked(*eps, dtype);
  Resize(out, self.sizes());
  Elementwise("logit", out, {&self}, dtype, [&](const Inputs& in) {
    return Push("logit", {in[0]}, {{"eps", eps.value_or(-1)}});
  });
  return out;
}
at::Tensor Logit(const at::Tensor& self, std::optional<double> eps) {
  at::Tensor out = MakeLike(self, FloatDType(self.scalar_type()));
  return LogitOut(self, eps, out);
}
at::Tensor& LogitInPlace(at::Tensor& self, std::optional<double> eps) {
  CheckResultCast(FloatDType(self.scalar_type()), self);
  return LogitOut(self, eps, self);
}

at::Tensor LogitBackward(const at::Tensor& gradient, const at::Tensor& self,
                         std::optional<double> eps) {
  return Backward("logit_backward", gradient, self, MakeLike(self), {{"eps", eps.value_or(-1)}});
}

// ---- shrinkage

at::Tensor& SoftshrinkOut(const at::Tensor& self, const at::Scalar& lambda, at::Tensor& out) {
  return Unary("softshrink", self, out, {{"lambd", lambda.toDouble()}});
}
at::Tensor& HardshrinkOut(const at::Tensor& self, const at::Scalar& lambda, at::Tensor& out) {
  Checked(lambda, self.scalar_type());
  return Unary("hardshrink", self, out, {{"lambd", lambda.toDouble()}});
}
at::Tensor& ShrinkBackwardOut(const at::Tensor& gradient, const at::Tensor& self,
                              const at::Scalar& lambda, at::Tensor& out) {
  return Backward("shrink_backward", gradient, self, out, {{"lambd", lambda.toDouble()}});
}

// ---- prelu, glu

at::Tensor PreluKernel(const at::Tensor& self, const at::Tensor& weight) {
  at::Tensor out = MakeResult(self, weight);
  Elementwise("prelu", out, {&self, &weight}, self.scalar_type(), [](const Inputs& in) {
    return Push("prelu", {in[0], in[1]}, {});
  });
  return out;
}
std::tuple<at::Tensor, at::Tensor> PreluKernelBackward(const at::Tensor& gradient,
                                                       const at::Tensor& self,
                                                       const at::Tensor& weight) {
  at::Tensor gx = MakeElementwise({&self, &weight, &gradient}, self.scalar_type(), DeviceOf(self));
  at::Tensor gw = MakeLike(gx);
  const c10::DeviceIndex device = CommonDevice("prelu_backward", {&gradient, &self, &weight});
  const at::ScalarType dtype = self.scalar_type();
  // The op takes a gradient of the result's shape. That of a sum is expanded, and vmap adds axes.
  const Value g = Cast(Read(gradient.expand(gx.sizes())), dtype),
              x = Cast(Read(self.expand(gx.sizes())), dtype), w = ReadAs(weight, dtype, device);
  const std::vector<Value> made = PushAll("prelu_backward", {In(g), In(x), In(w)}, {});
  Write(gx, made[0]);
  Write(gw, made[1]);
  return {gx, gw};
}

at::Tensor& GluOut(const at::Tensor& self, int64_t dim, at::Tensor& out) {
  return WriteOut(out, Push("glu", {Read(self)}, {{"axis", dim}}));
}
at::Tensor& GluBackwardOut(const at::Tensor& gradient, const at::Tensor& self, int64_t dim,
                           at::Tensor& out) {
  const Value g = Cast(Read(gradient), self.scalar_type());
  return WriteOut(
      out, Push("glu_backward", {g, Read(self)}, {{"axis", at::maybe_wrap_dim(dim, self.dim())}}));
}
at::Tensor GluBackward(const at::Tensor& gradient, const at::Tensor& self, int64_t dim) {
  at::Tensor out = MakeContiguous(self.sizes(), self.scalar_type(), DeviceOf(self));
  return GluBackwardOut(gradient, self, dim, out);
}

}  // namespace

TENSORD_KERNELS(m) {
  m.impl("gelu.out", GeluOut);
  m.impl("gelu_backward.grad_input", GeluBackwardOut);
  m.impl("sigmoid_backward.grad_input", SigmoidBackwardOut);
  m.impl("tanh_backward.grad_input", TanhBackwardOut);
  m.impl("silu_backward", SiluBackward);
  m.impl("silu_backward.grad_input", SiluBackwardOut);
  m.impl("threshold.out", ThresholdOut);
  m.impl("threshold_backward.grad_input", ThresholdBackwardOut);
  m.impl("leaky_relu.out", LeakyReluOut);
  m.impl("leaky_relu_backward.grad_input", LeakyReluBackwardOut);
  m.impl("elu.out", EluOut);
  m.impl("elu_backward.grad_input", EluBackwardOut);
  m.impl("softplus.out", SoftplusOut);
  m.impl("softplus_backward.grad_input", SoftplusBackwardOut);
  m.impl("hardtanh", Hardtanh);
  m.impl("hardtanh.out", HardtanhOut);
  m.impl("hardtanh_", HardtanhInPlace);
  m.impl("hardtanh_backward", HardtanhBackward);
  m.impl("hardsigmoid.out", HardsigmoidOut);
  m.impl("hardsigmoid_backward.grad_input", HardsigmoidBackwardOut);
  m.impl("hardswish", Hardswish);
  m.impl("hardswish.out", HardswishOut);
  m.impl("hardswish_", HardswishInPlace);
  m.impl("hardswish_backward", HardswishBackward);
  m.impl("mish.out", MishOut);
  m.impl("mish_backward", MishBackward);
  m.impl("log_sigmoid_forward", LogSigmoid);
  m.impl("log_sigmoid_backward", LogSigmoidBackward);
  m.impl("logit", Logit);
  m.impl("logit.out", LogitOut);
  m.impl("logit_", LogitInPlace);
  m.impl("logit_backward", LogitBackward);
  m.impl("softshrink.out", SoftshrinkOut);
  m.impl("hardshrink.out", HardshrinkOut);
  m.impl("softshrink_backward.grad_input", ShrinkBackwardOut);
  m.impl("hardshrink_backward.grad_input", ShrinkBackwardOut);
  m.impl("_prelu_kernel", PreluKernel);
  m.impl("_prelu_kernel_backward", PreluKernelBackward);
  m.impl("glu.out", GluOut);
  m.impl("glu_backward", GluBackward);
  m.impl("glu_backward.grad_input", GluBackwardOut);
}

}  // namespace torch_tensord
