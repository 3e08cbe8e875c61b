// Activation functions and the gradients of activations, which are compositions: ops that the
// server builds from other ops (common/ops/compositions/activations.cc). common/OPS.md lists their
// definitions. Names and meanings are PyTorch's.
//
// All functions take floating tensors, and Threshold, Hardtanh and their gradients also integers.
// As in ops.h, no function waits, errors are in the result's status, and all functions are
// thread-safe. float16 and bfloat16 are computed in float32, and rounded once.
//
// The functions whose names end in "Backward" compute gradients. They take the gradient of the
// result, and x or y, where x is the argument of the activation and y is its result.
#pragma once

#include "tensord/client/ops.h"
#include "tensord/client/tensor.h"

namespace tensord {

// These return the gradients of the ops Sigmoid, Tanh, Silu and Gelu.
Tensor SigmoidBackward(const Tensor& gradient, const Tensor& y);
Tensor TanhBackward(const Tensor& gradient, const Tensor& y);
Tensor SiluBackward(const Tensor& gradient, const Tensor& x);
Tensor GeluBackward(const Tensor& gradient, const Tensor& x,
                    GeluApproximation approximate = GeluApproximation::kNone);

struct SoftplusOptions {
  double beta = 1;
  double threshold = 20;  // if beta x exceeds it, the result is x
};
// Returns log(1 + exp(beta x)) / beta.
Tensor Softplus(const Tensor& x, const SoftplusOptions& options = {});
Tensor SoftplusBackward(const Tensor& gradient, const Tensor& x,
                        const SoftplusOptions& options = {});

// Returns x where x > threshold, and `value` elsewhere.
Tensor Threshold(const Tensor& x, double threshold, double value);
// With the threshold 0, this is also the gradient of Relu, for which y may take the place of x.
Tensor ThresholdBackward(const Tensor& gradient, const Tensor& x, double threshold = 0);

// Returns x where x > 0, and negative_slope x elsewhere.
Tensor LeakyRelu(const Tensor& x, double negative_slope = 0.01);
Tensor LeakyReluBackward(const Tensor& gradient, const Tensor& x, double negative_slope = 0.01);

struct EluOptions {
  double alpha = 1;
  double scale = 1;
  double input_scale = 1;
};
// Elu with these options is SELU.
inline constexpr EluOptions kSelu = {.alpha = 1.6732632423543772, .scale = 1.0507009873554805};
// Returns scale alpha (exp(input_scale x) - 1) where x < 0, and scale x elsewhere. CELU with alpha
// has the options {.alpha = alpha, .input_scale = 1 / alpha}.
Tensor Elu(const Tensor& x, const EluOptions& options = {});
Tensor EluBackward(const Tensor& gradient, const Tensor& x, const EluOptions& options = {});

// Returns x, but at least `min` and at most `max`. ReLU6 has the bounds 0 and 6.
Tensor Hardtanh(const Tensor& x, double min = -1, double max = 1);
Tensor HardtanhBackward(const Tensor& gradient, const Tensor& x, double min = -1, double max = 1);
// Returns h = (x + 3) / 6, but at least 0 and at most 1.
Tensor Hardsigmoid(const Tensor& x);
Tensor HardsigmoidBackward(const Tensor& gradient, const Tensor& x);
// Returns x h, where h is Hardsigmoid(x).
Tensor Hardswish(const Tensor& x);
Tensor HardswishBackward(const Tensor& gradient, const Tensor& x);

// Returns x tanh(log(1 + exp(x))).
Tensor Mish(const Tensor& x);
Tensor MishBackward(const Tensor& gradient, const Tensor& x);
// Returns log(1 / (1 + exp(-x))). Neither this function nor its gradient overflows.
Tensor LogSigmoid(const Tensor& x);
Tensor LogSigmoidBackward(const Tensor& gradient, const Tensor& x);
// Returns log(x / (1 - x)). If eps >= 0, x is first limited to [eps, 1 - eps].
Tensor Logit(const Tensor& x, double eps = -1);
Tensor LogitBackward(const Tensor& gradient, const Tensor& x, double eps = -1);

// Returns x - lambd where x > lambd, x + lambd where x < -lambd, and 0 elsewhere.
Tensor Softshrink(const Tensor& x, double lambd = 0.5);
// Returns 0 where |x| <= lambd, and x elsewhere. lambd is rounded to x's dtype, here and in the
// gradient, as PyTorch does.
Tensor Hardshrink(const Tensor& x, double lambd = 0.5);
// Returns the gradient of Softshrink, which is also that of Hardshrink.
Tensor ShrinkBackward(const Tensor& gradient, const Tensor& x, double lambd = 0.5);

// Returns x where x > 0, and weight x elsewhere. x and weight are broadcast together: a weight for
// each channel of x (N,C,…) has the shape (C,1,…).
Tensor Prelu(const Tensor& x, const Tensor& weight);
// Both have the shape of the result. If x or the weight was broadcast, its gradient is the sum over
// the broadcast axes.
struct PreluGradients {
  Tensor x;
  Tensor weight;
};
PreluGradients PreluBackward(const Tensor& gradient, const Tensor& x, const Tensor& weight);

// Returns a sigmoid(b), with the halves a and b of x along an axis, whose size must be even.
Tensor Glu(const Tensor& x, int64_t axis = -1);
Tensor GluBackward(const Tensor& gradient, const Tensor& x, int64_t axis = -1);

}  // namespace tensord
