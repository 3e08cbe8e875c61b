// The gradients of activations.
#include "tensord/tests/integration/gradient_configurations.h"

namespace tensord::integration {
namespace {

// Makes a configuration of a function of x whose gradient takes x.
template <typename Forward, typename Backward>
Configuration OfArgument(Draw& draw, Forward forward, Backward backward) {
  return {{draw.Values(draw.RandomShape(0, 3, 5))},
          [=](const Tensors& in) { return forward(in[0]); },
          [=](const Tensors& in, const Tensor& g) { return Tensors{backward(g, in[0])}; }};
}
// Makes a configuration of a function of x whose gradient takes the result.
template <typename Forward, typename Backward>
Configuration OfResult(Draw& draw, Forward forward, Backward backward) {
  return {{draw.Values(draw.RandomShape(0, 3, 5))},
          [=](const Tensors& in) { return forward(in[0]); },
          [=](const Tensors& in, const Tensor& g) { return Tensors{backward(g, forward(in[0]))}; }};
}

Configuration MakeSigmoid(Draw& draw) { return OfResult(draw, Sigmoid, SigmoidBackward); }
Configuration MakeTanh(Draw& draw) { return OfResult(draw, Tanh, TanhBackward); }
Configuration MakeSilu(Draw& draw) { return OfArgument(draw, Silu, SiluBackward); }
Configuration MakeGelu(Draw& draw) {
  const auto kind = draw.Flag() ? GeluApproximation::kTanh : GeluApproximation::kNone;
  return OfArgument(
      draw, [=](const Tensor& x) { return Gelu(x, kind); },
      [=](const Tensor& g, const Tensor& x) { return GeluBackward(g, x, kind); });
}
Configuration MakeSoftplus(Draw& draw) {
  const SoftplusOptions options = {.beta = 0.25 * static_cast<double>(draw.Number(1, 8)),
                                   .threshold = draw.Flag() ? 20.0 : 0.5};
  // Beyond the threshold, the function is x: the derivative is exact, but the function jumps.
  return OfArgument(
      draw, [=](const Tensor& x) { return Softplus(x, options); },
      [=](const Tensor& g, const Tensor& x) { return SoftplusBackward(g, x, options); });
}
Configuration MakeThreshold(Draw& draw) {
  const double threshold = static_cast<double>(draw.Number(-2, 2));
  return OfArgument(
      draw, [=](const Tensor& x) { return Threshold(x, threshold, 3); },
      [=](const Tensor& g, const Tensor& x) { return ThresholdBackward(g, x, threshold); });
}
Configuration MakeRelu(Draw& draw) {
  return OfResult(draw, Relu,
                  [](const Tensor& g, const Tensor& y) { return ThresholdBackward(g, y); });
}
Configuration MakeLeakyRelu(Draw& draw) {
  const double slope = 0.125 * static_cast<double>(draw.Number(-4, 4));
  return OfArgument(
      draw, [=](const Tensor& x) { return LeakyRelu(x, slope); },
      [=](const Tensor& g, const Tensor& x) { return LeakyReluBackward(g, x, slope); });
}
Configuration MakeElu(Draw& draw) {
  const double alpha = 0.25 * static_cast<double>(draw.Number(1, 8));
  const EluOptions kinds[] = {{.alpha = alpha}, kSelu, {.alpha = alpha, .input_scale = 1 / alpha}};
  const EluOptions options = kinds[draw.Number(0, 2)];
  return OfArgument(
      draw, [=](const Tensor& x) { return Elu(x, options); },
      [=](const Tensor& g, const Tensor& x) { return EluBackward(g, x, options); });
}
Configuration MakeHardtanh(Draw& draw) {
  const double min = static_cast<double>(draw.Number(-3, 0)), max = min + 1.5;
  return OfArgument(
      draw, [=](const Tensor& x) { return Hardtanh(x, min, max); },
      [=](const Tensor& g, const Tensor& x) { return HardtanhBackward(g, x, min, max); });
}
Configuration MakeHardsigmoid(Draw& draw) {
  return OfArgument(draw, Hardsigmoid, HardsigmoidBackward);
}
Configuration MakeHardswish(Draw& draw) { return OfArgument(draw, Hardswish, HardswishBackward); }
Configuration MakeMish(Draw& draw) { return OfArgument(draw, Mish, MishBackward); }
Configuration MakeLogSigmoid(Draw& draw) {
  return OfArgument(draw, LogSigmoid, LogSigmoidBackward);
}
Configuration MakeShrink(Draw& draw) {
  const double lambd = 0.25 * static_cast<double>(draw.Number(0, 8));
  const bool hard = draw.Flag();
  return OfArgument(
      draw, [=](const Tensor& x) { return hard ? Hardshrink(x, lambd) : Softshrink(x, lambd); },
      [=](const Tensor& g, const Tensor& x) { return ShrinkBackward(g, x, lambd); });
}
Configuration MakeLogit(Draw& draw) {
  const double eps = draw.Flag() ? 0.25 : -1;
  return {
      {draw.Probabilities(draw.RandomShape(0, 3, 5))},
      [=](const Tensors& in) { return Logit(in[0], eps); },
      [=](const Tensors& in, const Tensor& g) { return Tensors{LogitBackward(g, in[0], eps)}; }};
}
Configuration MakePrelu(Draw& draw) {
  const Shape shape = draw.RandomShape(0, 3, 5);
  return {{draw.Values(shape), draw.Values(shape)},
          [](const Tensors& in) { return Prelu(in[0], in[1]); },
          [](const Tensors& in, const Tensor& g) {
            const PreluGradients gradients = PreluBackward(g, in[0], in[1]);
            return Tensors{gradients.x, gradients.weight};
          }};
}
Configuration MakeGlu(Draw& draw) {
  Shape shape = draw.RandomShape(1, 3, 4);
  const int axis = static_cast<int>(draw.Number(0, shape.rank() - 1));
  shape.set_dim(axis, 2 * shape.dim(axis));
  return {{draw.Values(shape)},
          [=](const Tensors& in) { return Glu(in[0], axis); },
          [=](const Tensors& in, const Tensor& g) { return Tensors{GluBackward(g, in[0], axis)}; }};
}

const Case kActivationCases[] = {
    {{"sigmoid_backward"}, 4, MakeSigmoid},
    {{"tanh_backward"}, 4, MakeTanh},
    {{"silu_backward"}, 4, MakeSilu},
    {{"gelu_backward"}, 8, MakeGelu},
    {{"softplus_backward"}, 8, MakeSoftplus},
    {{"threshold_backward"}, 6, MakeThreshold},
    {{"threshold_backward"}, 4, MakeRelu},
    {{"leaky_relu_backward"}, 6, MakeLeakyRelu},
    {{"elu_backward"}, 12, MakeElu},
    {{"hardtanh_backward"}, 6, MakeHardtanh},
    {{"hardsigmoid_backward"}, 4, MakeHardsigmoid},
    {{"hardswish_backward"}, 4, MakeHardswish},
    {{"mish_backward"}, 4, MakeMish},
    {{"log_sigmoid_backward"}, 4, MakeLogSigmoid},
    {{"shrink_backward"}, 8, MakeShrink},
    {{"logit_backward"}, 6, MakeLogit},
    {{"prelu_backward"}, 4, MakePrelu},
    {{"glu_backward"}, 6, MakeGlu},
};

}  // namespace

absl::Span<const Case> ActivationCases() { return kActivationCases; }

}  // namespace tensord::integration
