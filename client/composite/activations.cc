#include "tensord/client/composite/activations.h"

#include "tensord/client/internal/composite.h"

namespace tensord {
namespace {

using internal::Composite;
using internal::Narrow;
using internal::Widen;

// Computes a function of one tensor. 16-bit floats are computed in float32.
template <typename Function>
Tensor Activate(absl::string_view name, const Tensor& x, Function function) {
  return Composite(name, {x}, Narrow(function(Widen(x)), {&x}));
}

// Computes a gradient, function(gradient, x). 16-bit floats are computed in float32.
template <typename Function>
Tensor Differentiate(absl::string_view name, const Tensor& gradient, const Tensor& x,
                     Function function) {
  return Composite(name, {gradient, x},
                   Narrow(function(Widen(gradient), Widen(x)), {&gradient, &x}));
}

// The server fuses a chain of ops: each but the first uses the result of the one before it, and no
// other op uses that result. So a value that is used twice is an operand of its own kernel, and the
// expressions below compute cheap values again.

Tensor GeluGradient(const Tensor& g, const Tensor& x) {
  constexpr double kSqrtHalf = 0.70710678118654752440, kInverseSqrtTwoPi = 0.39894228040143267794;
  const Tensor distribution = (Erf(x * kSqrtHalf) + 1) * 0.5;
  const Tensor density = Exp(x * x * -0.5) * kInverseSqrtTwoPi;
  return (density * x + distribution) * g;
}

Tensor GeluTanhGradient(const Tensor& g, const Tensor& x) {
  constexpr double kSqrtTwoOverPi = 0.79788456080286535588, kCubic = 0.044715;
  const Tensor tanh = Tanh((x * x * kCubic + 1) * x * kSqrtTwoOverPi);
  const Tensor inner_slope = (x * x * (3 * kCubic) + 1) * kSqrtTwoOverPi;
  return ((1 - tanh * tanh) * inner_slope * x + tanh + 1) * 0.5 * g;
}

// Returns log(1 + exp(x)), without overflow.
Tensor LogOnePlusExp(const Tensor& x) { return Logaddexp(x, 0); }

}  // namespace

Tensor SigmoidBackward(const Tensor& gradient, const Tensor& y) {
  return Differentiate("sigmoid_backward", gradient, y,
                       [](const Tensor& g, const Tensor& s) { return g * (1 - s) * s; });
}

Tensor TanhBackward(const Tensor& gradient, const Tensor& y) {
  return Differentiate("tanh_backward", gradient, y,
                       [](const Tensor& g, const Tensor& t) { return g * (1 - t * t); });
}

Tensor SiluBackward(const Tensor& gradient, const Tensor& x) {
  return Differentiate("silu_backward", gradient, x, [](const Tensor& g, const Tensor& wide) {
    const Tensor sigmoid = Sigmoid(wide);
    return ((1 - sigmoid) * wide + 1) * sigmoid * g;
  });
}

Tensor GeluBackward(const Tensor& gradient, const Tensor& x, GeluApproximation approximate) {
  return Differentiate("gelu_backward", gradient, x, [&](const Tensor& g, const Tensor& wide) {
    return approximate == GeluApproximation::kTanh ? GeluTanhGradient(g, wide)
                                                   : GeluGradient(g, wide);
  });
}

Tensor SoftplusBackward(const Tensor& gradient, const Tensor& x, const SoftplusOptions& options) {
  return Differentiate("softplus_backward", gradient, x, [&](const Tensor& g, const Tensor& wide) {
    const Tensor scaled = wide * options.beta;
    return Where(Gt(scaled, options.threshold), g, g * Sigmoid(scaled));
  });
}

Tensor Threshold(const Tensor& x, double threshold, double value) {
  return Composite("threshold", {x}, Where(Le(x, threshold), value, x));
}

Tensor ThresholdBackward(const Tensor& gradient, const Tensor& x, double threshold) {
  return Composite("threshold_backward", {gradient, x}, Where(Le(x, threshold), 0, gradient));
}

Tensor LeakyRelu(const Tensor& x, double negative_slope) {
  return Activate("leaky_relu", x, [&](const Tensor& wide) {
    if (negative_slope == 0) return Relu(wide);
    const Tensor line = wide * negative_slope;
    return negative_slope <= 1 ? Maximum(line, wide) : Minimum(line, wide);
  });
}

Tensor LeakyReluBackward(const Tensor& gradient, const Tensor& x, double negative_slope) {
  return Differentiate("leaky_relu_backward", gradient, x,
                       [&](const Tensor& g, const Tensor& wide) {
                         return Where(Gt(wide, 0), g, g * negative_slope);
                       });
}

Tensor Elu(const Tensor& x, const EluOptions& options) {
  return Activate("elu", x, [&](const Tensor& wide) {
    const Tensor curve = Expm1(wide * options.input_scale) * (options.alpha * options.scale);
    return Where(Gt(wide, 0), wide * options.scale, curve);
  });
}

Tensor EluBackward(const Tensor& gradient, const Tensor& x, const EluOptions& options) {
  return Differentiate("elu_backward", gradient, x, [&](const Tensor& g, const Tensor& wide) {
    const double factor = options.alpha * options.scale * options.input_scale;
    const Tensor slope = Exp(wide * options.input_scale) * factor;
    return Where(Gt(wide, 0), options.scale, slope) * g;
  });
}

Tensor Hardtanh(const Tensor& x, double min, double max) {
  return Composite("hardtanh", {x}, Minimum(Maximum(x, min), max));
}

Tensor HardtanhBackward(const Tensor& gradient, const Tensor& x, double min, double max) {
  return Composite("hardtanh_backward", {gradient, x},
                   Where(BitwiseOr(Le(x, min), Ge(x, max)), 0, gradient));
}

Tensor Hardsigmoid(const Tensor& x) {
  return Activate("hardsigmoid", x,
                  [](const Tensor& wide) { return Minimum(Maximum(wide + 3, 0), 6) / 6; });
}

Tensor HardsigmoidBackward(const Tensor& gradient, const Tensor& x) {
  return Differentiate(
      "hardsigmoid_backward", gradient, x,
      [](const Tensor& g, const Tensor& wide) { return Where(Ge(Abs(wide), 3), 0, g) / 6; });
}

Tensor Hardswish(const Tensor& x) {
  return Activate("hardswish", x,
                  [](const Tensor& wide) { return Minimum(Maximum(wide + 3, 0), 6) * wide / 6; });
}

Tensor HardswishBackward(const Tensor& gradient, const Tensor& x) {
  return Differentiate("hardswish_backward", gradient, x, [](const Tensor& g, const Tensor& wide) {
    const Tensor rising = Where(Ge(wide, 3), g, g * (wide / 3 + 0.5));
    return Where(Le(wide, -3), 0, rising);
  });
}

Tensor Mish(const Tensor& x) {
  return Activate("mish", x, [](const Tensor& wide) { return Tanh(LogOnePlusExp(wide)) * wide; });
}

Tensor MishBackward(const Tensor& gradient, const Tensor& x) {
  return Differentiate("mish_backward", gradient, x, [](const Tensor& g, const Tensor& wide) {
    const Tensor tanh = Tanh(LogOnePlusExp(wide));
    const Tensor sigmoid = Sigmoid(wide);
    return ((1 - tanh * tanh) * sigmoid * wide + tanh) * g;
  });
}

Tensor LogSigmoid(const Tensor& x) {
  return Activate("log_sigmoid", x, [](const Tensor& wide) { return -LogOnePlusExp(-wide); });
}

Tensor LogSigmoidBackward(const Tensor& gradient, const Tensor& x) {
  return Differentiate("log_sigmoid_backward", gradient, x,
                       [](const Tensor& g, const Tensor& wide) { return g * Sigmoid(-wide); });
}

}  // namespace tensord
