// Activations, and the gradients of all of them. 16-bit dtypes are computed in float32, and rounded
// once.
#include <limits>
#include <utility>

#include "kernels.h"

namespace torch_tensord {

const char* GeluKind(c10::string_view approximate) {
  TORCH_CHECK(approximate == "tanh" || approximate == "none",
              "approximate argument must be either none or tanh.");
  return approximate == "tanh" ? "tanh" : "none";
}

namespace {

at::Scalar Const(double value) { return value; }
Value Sigmoid(const Value& x) { return Push(op::sigmoid, {x}); }
Value Negative(const Value& x) { return Push(op::neg, {x}); }
Value From(double number, const Value& x) {
  return Push(op::sub, {Number(number, x), x});
}  // number - x
Value Greater(const Value& x, const at::Scalar& y) { return Push(op::gt, {x, Number(y, x)}); }
Value Less(const Value& x, const at::Scalar& y) { return Push(op::lt, {x, Number(y, x)}); }
Value And(const Value& a, const Value& b) { return Push(op::bitwise_and, {a, b}); }
Value ClampTo(const Value& x, const at::Scalar& low, const at::Scalar& high) {
  return Push(op::minimum, {Push(op::maximum, {x, Number(low, x)}), Number(high, x)});
}

at::Tensor MakeResult(const at::Tensor& a, const at::Tensor& b) {
  return MakeElementwise({&a, &b}, a.scalar_type(), DeviceOf(a));
}

void CheckFloating(const char* name, const at::Tensor& x) {
  TORCH_CHECK_NOT_IMPLEMENTED(at::isFloatingType(x.scalar_type()), name, " isn't implemented for ",
                              x.scalar_type());
}

// Computes out = function(self) in ComputeDType.
template <typename Function>
at::Tensor& Unary(const char* name, const at::Tensor& self, const at::Tensor& out,
                  Function function) {
  CheckFloating(name, self);
  Resize(out, self.sizes());
  Elementwise(name, out, {&self}, ComputeDType(self.scalar_type()),
              [&](const Inputs& in) { return function(Own(in[0])); });
  return const_cast<at::Tensor&>(out);
}
// Computes the gradient, function(gradient, x).
template <typename Function>
at::Tensor& Backward(const char* name, const at::Tensor& gradient, const at::Tensor& x,
                     const at::Tensor& out, Function function) {
  CheckFloating(name, x);
  ResizeBroadcast(out, x, gradient);
  Elementwise(name, out, {&gradient, &x}, ComputeDType(x.scalar_type()),
              [&](const Inputs& in) { return function(Own(in[0]), Own(in[1])); });
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
Value GeluGradient(const Value& g, const Value& x) {
  constexpr double kSqrtHalf = 0.70710678118654752440, kInvSqrtTwoPi = 0.39894228040143267794;
  const Value cdf = Mul(Add(Push(op::erf, {Mul(x, Const(kSqrtHalf))}), Const(1)), Const(0.5));
  const Value pdf = Mul(Push(op::exp, {Mul(Mul(x, x), Const(-0.5))}), Const(kInvSqrtTwoPi));
  return Mul(g, Add(cdf, Mul(x, pdf)));
}
Value GeluTanhGradient(const Value& g, const Value& x) {
  constexpr double kBeta = 0.79788456080286535588, kKappa = 0.044715;
  const Value square = Mul(x, x);
  const Value inner = Mul(Mul(x, Add(Mul(square, Const(kKappa)), Const(1))), Const(kBeta));
  const Value tanh = Push(op::tanh, {inner});
  const Value left = Mul(Add(tanh, Const(1)), Const(0.5));
  const Value slope = Mul(Add(Mul(square, Const(3 * kKappa)), Const(1)), Const(kBeta));
  const Value right = Mul(Mul(Mul(x, From(1, Mul(tanh, tanh))), slope), Const(0.5));
  return Mul(g, Add(left, right));
}
at::Tensor& GeluBackwardOut(const at::Tensor& gradient, const at::Tensor& self,
                            c10::string_view approximate, at::Tensor& out) {
  return Backward(
      "gelu_backward", gradient, self, out,
      std::string_view(GeluKind(approximate)) == "tanh" ? GeluTanhGradient : GeluGradient);
}

// ---- gradients by the result or the input

at::Tensor& SigmoidBackwardOut(const at::Tensor& gradient, const at::Tensor& output,
                               at::Tensor& out) {
  return Backward("sigmoid_backward", gradient, output, out,
                  [](const Value& g, const Value& y) { return Mul(Mul(g, From(1, y)), y); });
}
at::Tensor& TanhBackwardOut(const at::Tensor& gradient, const at::Tensor& output, at::Tensor& out) {
  return Backward("tanh_backward", gradient, output, out,
                  [](const Value& g, const Value& y) { return Mul(g, From(1, Mul(y, y))); });
}
at::Tensor& SiluBackwardOut(const at::Tensor& gradient, const at::Tensor& self, at::Tensor& out) {
  return Backward("silu_backward", gradient, self, out, [](const Value& g, const Value& x) {
    const Value s = Sigmoid(x);
    return Mul(Mul(g, s), Add(Mul(x, From(1, s)), Const(1)));
  });
}

// ---- by a threshold

at::Tensor& ThresholdOut(const at::Tensor& self, const at::Scalar& threshold,
                         const at::Scalar& value, at::Tensor& out) {
  const at::ScalarType dtype = self.scalar_type();
  TORCH_CHECK_NOT_IMPLEMENTED(dtype != at::kBool, "threshold isn't implemented for bool");
  Checked(threshold, ComputeDType(dtype));
  const In replacement = Checked(value, dtype);
  Resize(out, self.sizes());
  // PyTorch allows an output whose elements share memory: all get the same number.
  Elementwise("threshold", WithoutRepeats(out), {&self}, dtype, [&](const Inputs& in) {
    const Value x = Own(in[0]);
    return Where(Push(op::le, {x, Number(threshold, x)}), replacement, x);
  });
  return out;
}
at::Tensor& ThresholdBackwardOut(const at::Tensor& gradient, const at::Tensor& self,
                                 const at::Scalar& threshold, at::Tensor& out) {
  ResizeBroadcast(out, self, gradient);
  Elementwise("threshold_backward", out, {&gradient, &self}, self.scalar_type(),
              [&](const Inputs& in) {
                const Value x = Own(in[1]);
                return Where(Push(op::le, {x, Number(threshold, x)}), Number(0, x), in[0]);
              });
  return out;
}
at::Tensor& LeakyReluOut(const at::Tensor& self, const at::Scalar& slope, at::Tensor& out) {
  if (at::isFloatingType(self.scalar_type())) Checked(slope, ComputeDType(self.scalar_type()));
  return Unary("leaky_relu", self, out,
               [&](const Value& x) { return Where(Greater(x, 0), x, Mul(x, slope)); });
}
at::Tensor& LeakyReluBackwardOut(const at::Tensor& gradient, const at::Tensor& self,
                                 const at::Scalar& slope, bool, at::Tensor& out) {
  return Backward("leaky_relu_backward", gradient, self, out, [&](const Value& g, const Value& x) {
    return Where(Greater(x, 0), g, Mul(g, slope));
  });
}
at::Tensor& EluOut(const at::Tensor& self, const at::Scalar& alpha, const at::Scalar& scale,
                   const at::Scalar& input_scale, at::Tensor& out) {
  return Unary("elu", self, out, [&](const Value& x) {
    for (const at::Scalar& each : {alpha, scale, input_scale}) Checked(each, x->dtype());
    const Value negative =
        Mul(Push(op::expm1, {Mul(x, input_scale)}), Const(alpha.toDouble() * scale.toDouble()));
    return Where(Less(x, 0), negative, Mul(x, scale));
  });
}
at::Tensor& EluBackwardOut(const at::Tensor& gradient, const at::Scalar& alpha,
                           const at::Scalar& scale, const at::Scalar& input_scale, bool is_result,
                           const at::Tensor& self, at::Tensor& out) {
  const double a = alpha.toDouble() * scale.toDouble();
  return Backward("elu_backward", gradient, self, out, [&](const Value& g, const Value& x) {
    const Value slope =
        is_result ? Add(x, Const(a)) : Mul(Push(op::exp, {Mul(x, input_scale)}), Const(a));
    return Where(Greater(x, 0), Mul(g, scale), Mul(Mul(g, slope), input_scale));
  });
}
at::Tensor& SoftplusOut(const at::Tensor& self, const at::Scalar& beta, const at::Scalar& threshold,
                        at::Tensor& out) {
  return Unary("softplus", self, out, [&](const Value& x) {
    for (const at::Scalar& each : {beta, threshold}) Checked(each, x->dtype());
    const Value scaled = Mul(x, beta);
    const Value soft = Div(Push(op::log1p, {Push(op::exp, {scaled})}), beta);
    return Where(Greater(scaled, threshold), x, soft);
  });
}
at::Tensor& SoftplusBackwardOut(const at::Tensor& gradient, const at::Tensor& self,
                                const at::Scalar& beta, const at::Scalar& threshold,
                                at::Tensor& out) {
  return Backward("softplus_backward", gradient, self, out, [&](const Value& g, const Value& x) {
    const Value scaled = Mul(x, beta);
    return Where(Greater(scaled, threshold), g, Mul(g, Sigmoid(scaled)));
  });
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
  return Backward("hardtanh_backward", gradient, self, MakeResult(self, gradient),
                  [&](const Value& g, const Value& x) {
                    return Where(And(Greater(x, low), Less(x, high)), g, Number(0, g));
                  });
}
at::Tensor& HardsigmoidOut(const at::Tensor& self, at::Tensor& out) {
  return Unary("hardsigmoid", self, out,
               [](const Value& x) { return Div(ClampTo(Add(x, Const(3)), 0, 6), Const(6)); });
}
at::Tensor& HardsigmoidBackwardOut(const at::Tensor& gradient, const at::Tensor& self,
                                   at::Tensor& out) {
  return Backward("hardsigmoid_backward", gradient, self, out, [](const Value& g, const Value& x) {
    return Where(And(Greater(x, -3), Less(x, 3)), Div(g, Const(6)), Number(0, g));
  });
}
at::Tensor& HardswishOut(const at::Tensor& self, at::Tensor& out) {
  return Unary("hardswish", self, out, [](const Value& x) {
    return Div(Mul(x, ClampTo(Add(x, Const(3)), 0, 6)), Const(6));
  });
}
at::Tensor Hardswish(const at::Tensor& self) {
  at::Tensor out = MakeLike(self);
  return HardswishOut(self, out);
}
at::Tensor& HardswishInPlace(at::Tensor& self) { return HardswishOut(self, self); }
at::Tensor HardswishBackward(const at::Tensor& gradient, const at::Tensor& self) {
  return Backward(
      "hardswish_backward", gradient, self, MakeResult(self, gradient),
      [](const Value& g, const Value& x) {
        const Value middle = Mul(g, Add(Div(x, Const(3)), Const(0.5)));
        return Where(Push(op::le, {x, Number(-3, x)}), Number(0, g), Where(Less(x, 3), middle, g));
      });
}

// ---- smooth ones

Value Softplus(const Value& x) {
  // max(x, 0) + log1p(exp(-|x|))
  return Add(Push(op::relu, {x}), Push(op::log1p, {Push(op::exp, {Negative(Push(op::abs, {x}))})}));
}
at::Tensor& MishOut(const at::Tensor& self, at::Tensor& out) {
  return Unary("mish", self, out,
               [](const Value& x) { return Mul(x, Push(op::tanh, {Softplus(x)})); });
}
at::Tensor MishBackward(const at::Tensor& gradient, const at::Tensor& self) {
  return Backward("mish_backward", gradient, self, MakeResult(self, gradient),
                  [](const Value& g, const Value& x) {
                    const Value tanh = Push(op::tanh, {Softplus(x)});
                    return Mul(g, Add(tanh, Mul(Mul(x, Sigmoid(x)), From(1, Mul(tanh, tanh)))));
                  });
}
std::tuple<at::Tensor, at::Tensor> LogSigmoid(const at::Tensor& self) {
  at::Tensor out = MakeLike(self);
  Unary("log_sigmoid", self, out, [](const Value& x) { return Negative(Softplus(Negative(x))); });
  return {out, MakeContiguous({0}, self.scalar_type(), DeviceOf(self))};
}
at::Tensor LogSigmoidBackward(const at::Tensor& gradient, const at::Tensor& self,
                              const at::Tensor&) {
  return Backward("log_sigmoid_backward", gradient, self, MakeResult(self, gradient),
                  [](const Value& g, const Value& x) { return Mul(g, Sigmoid(Negative(x))); });
}
at::Tensor& LogitOut(const at::Tensor& self, std::optional<double> eps, at::Tensor& out) {
  const at::ScalarType dtype = FloatDType(self.scalar_type());
  if (eps.has_value()) Checked(*eps, dtype);
  Resize(out, self.sizes());
  Elementwise("logit", out, {&self}, ComputeDType(dtype), [&](const Inputs& in) {
    Value x = Own(in[0]);
    if (eps.has_value()) {
      // PyTorch compares with the lower limit first: if it exceeds the upper one, it counts.
      const double high = 1 - *eps;
      x = Where(Less(x, *eps), Number(*eps, x), Where(Greater(x, high), Number(high, x), x));
    }
    return Push(op::log, {Div(x, From(1, x))});
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

at::Tensor PreluKernel(const at::Tensor& self, const at::Tensor& weight) {
  at::Tensor out = MakeResult(self, weight);
  Elementwise("prelu", out, {&self, &weight}, ComputeDType(self.scalar_type()),
              [](const Inputs& in) {
                const Value x = Own(in[0]);
                return Where(Greater(x, 0), x, Push(op::mul, {x, in[1]}));
              });
  return out;
}
std::tuple<at::Tensor, at::Tensor> PreluKernelBackward(const at::Tensor& gradient,
                                                       const at::Tensor& self,
                                                       const at::Tensor& weight) {
  at::Tensor gx = MakeElementwise({&self, &weight, &gradient}, self.scalar_type(), DeviceOf(self));
  at::Tensor gw = MakeLike(gx);
  const c10::DeviceIndex device = CommonDevice("prelu_backward", {&gradient, &self, &weight});
  const at::ScalarType dtype = ComputeDType(self.scalar_type());
  const Value g = ReadAs(gradient, dtype, device), x = ReadAs(self, dtype, device);
  const Value positive = Greater(x, 0);
  Write(gx, Where(positive, g, Mul(g, ReadAs(weight, dtype, device))));
  Write(gw, Where(positive, Number(0, g), Mul(g, x)));
  return {gx, gw};
}

std::pair<Value, Value> Halves(const at::Tensor& self, int64_t dim, at::ScalarType dtype) {
  const int64_t axis = at::maybe_wrap_dim(dim, self.dim()), half = self.size(axis) / 2;
  const Value x = Cast(Read(self), dtype);
  return {Narrow(x, axis, 0, half), Narrow(x, axis, half, 2 * half)};
}
at::Tensor& GluOut(const at::Tensor& self, int64_t dim, at::Tensor& out) {
  const auto [a, b] = Halves(self, dim, ComputeDType(self.scalar_type()));
  return WriteOut(out, Mul(a, Sigmoid(b)));
}
at::Tensor& GluBackwardOut(const at::Tensor& gradient, const at::Tensor& self, int64_t dim,
                           at::Tensor& out) {
  const at::ScalarType dtype = ComputeDType(self.scalar_type());
  const auto [a, b] = Halves(self, dim, dtype);
  const Value g = Cast(Read(gradient), dtype), s = Sigmoid(b);
  const Value ga = Mul(g, s);
  return WriteOut(out,
                  Concat({ga, Mul(Mul(ga, From(1, s)), a)}, at::maybe_wrap_dim(dim, self.dim())));
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
  m.impl("_prelu_kernel", PreluKernel);
  m.impl("_prelu_kernel_backward", PreluKernelBackward);
  m.impl("glu.out", GluOut);
  m.impl("glu_backward", GluBackward);
  m.impl("glu_backward.grad_input", GluBackwardOut);
}

}  // namespace torch_tensord
