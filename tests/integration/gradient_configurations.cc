#include "tensord/tests/integration/gradient_configurations.h"

#include <algorithm>
#include <cmath>
#include <iterator>

namespace tensord::integration {
namespace {

// ---------------------------------------------------------------- activations

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

// ---------------------------------------------------------------- softmax, losses

Configuration MakeSoftmax(Draw& draw) {
  const Shape shape = draw.RandomShape(1, 3, 5);
  const int64_t axis = draw.Number(-shape.rank(), shape.rank() - 1);
  const bool log = draw.Flag();
  const auto forward = [=](const Tensors& in) {
    return log ? LogSoftmax(in[0], axis) : Softmax(in[0], axis);
  };
  return {{draw.Values(shape)}, forward, [=](const Tensors& in, const Tensor& g) {
            const Tensor y = forward(in);
            return Tensors{log ? LogSoftmaxBackward(g, y, axis) : SoftmaxBackward(g, y, axis)};
          }};
}

LossReduction Reduction(Draw& draw) {
  constexpr LossReduction kReductions[] = {LossReduction::kNone, LossReduction::kMean,
                                           LossReduction::kSum};
  return kReductions[draw.Number(0, 2)];
}

template <typename Forward, typename Backward>
Configuration OfLoss(const Tensor& x, const Tensor& target, Forward forward, Backward backward) {
  return {{x},
          [=](const Tensors& in) { return forward(in[0], target); },
          [=](const Tensors& in, const Tensor& g) { return Tensors{backward(g, in[0], target)}; }};
}

Configuration MakeMse(Draw& draw) {
  const Shape shape = draw.RandomShape(0, 3, 5);
  const LossReduction reduction = Reduction(draw);
  return OfLoss(
      draw.Values(shape), draw.EvenValues(shape),
      [=](const Tensor& x, const Tensor& t) { return MseLoss(x, t, reduction); },
      [=](const Tensor& g, const Tensor& x, const Tensor& t) {
        return MseLossBackward(g, x, t, reduction);
      });
}
Configuration MakeL1(Draw& draw) {
  const Shape shape = draw.RandomShape(0, 3, 5);
  const LossReduction reduction = Reduction(draw);
  return OfLoss(
      draw.Values(shape), draw.EvenValues(shape),
      [=](const Tensor& x, const Tensor& t) { return L1Loss(x, t, reduction); },
      [=](const Tensor& g, const Tensor& x, const Tensor& t) {
        return L1LossBackward(g, x, t, reduction);
      });
}
Configuration MakeSmoothL1(Draw& draw) {
  const Shape shape = draw.RandomShape(0, 3, 5);
  const SmoothL1LossOptions options = {.reduction = Reduction(draw),
                                       .beta = 0.5 * static_cast<double>(draw.Number(0, 4))};
  return OfLoss(
      draw.Values(shape), draw.EvenValues(shape),
      [=](const Tensor& x, const Tensor& t) { return SmoothL1Loss(x, t, options); },
      [=](const Tensor& g, const Tensor& x, const Tensor& t) {
        return SmoothL1LossBackward(g, x, t, options);
      });
}
Configuration MakeHuber(Draw& draw) {
  const Shape shape = draw.RandomShape(0, 3, 5);
  const HuberLossOptions options = {.reduction = Reduction(draw),
                                    .delta = 0.5 * static_cast<double>(draw.Number(1, 4))};
  return OfLoss(
      draw.Values(shape), draw.EvenValues(shape),
      [=](const Tensor& x, const Tensor& t) { return HuberLoss(x, t, options); },
      [=](const Tensor& g, const Tensor& x, const Tensor& t) {
        return HuberLossBackward(g, x, t, options);
      });
}

// Returns a weight that broadcasts to the shape, or none.
std::optional<Tensor> OptionalWeight(Draw& draw, const Shape& shape) {
  if (draw.Flag()) return std::nullopt;
  if (shape.rank() == 0 || draw.Flag()) return draw.Positive(shape);
  return draw.Positive({shape.dim(shape.rank() - 1)});
}

Configuration MakeBinaryCrossEntropy(Draw& draw) {
  const Shape shape = draw.RandomShape(0, 3, 5);
  const BinaryCrossEntropyOptions options = {.reduction = Reduction(draw),
                                             .weight = OptionalWeight(draw, shape)};
  return OfLoss(
      draw.Probabilities(shape), draw.Probabilities(shape),
      [=](const Tensor& x, const Tensor& t) { return BinaryCrossEntropy(x, t, options); },
      [=](const Tensor& g, const Tensor& x, const Tensor& t) {
        return BinaryCrossEntropyBackward(g, x, t, options);
      });
}
Configuration MakeBinaryCrossEntropyWithLogits(Draw& draw) {
  const Shape shape = draw.RandomShape(0, 3, 5);
  const BinaryCrossEntropyWithLogitsOptions options = {.reduction = Reduction(draw),
                                                       .weight = OptionalWeight(draw, shape),
                                                       .pos_weight = OptionalWeight(draw, shape)};
  return OfLoss(
      draw.Values(shape), draw.Probabilities(shape),
      [=](const Tensor& x, const Tensor& t) { return BinaryCrossEntropyWithLogits(x, t, options); },
      [=](const Tensor& g, const Tensor& x, const Tensor& t) {
        return BinaryCrossEntropyWithLogitsBackward(g, x, t, options);
      });
}
Configuration MakeKlDiv(Draw& draw) {
  const Shape shape = draw.RandomShape(0, 3, 5);
  const KlDivOptions options = {.reduction = Reduction(draw), .log_target = draw.Flag()};
  // Without logarithms, some targets are 0.
  const Tensor target = options.log_target ? draw.Values(shape) : Relu(draw.EvenValues(shape));
  return OfLoss(
      draw.Values(shape), target,
      [=](const Tensor& x, const Tensor& t) { return KlDiv(x, t, options); },
      [=](const Tensor& g, const Tensor& x, const Tensor& t) {
        return KlDivBackward(g, x, t, options);
      });
}

// The operands of a loss over classes.
struct Classification {
  Tensor x, target;
  std::optional<int64_t> axis;
  std::optional<Tensor> weight;
};
Classification MakeClassification(Draw& draw) {
  Classification of;
  const Shape shape = draw.RandomShape(1, 4, 4);
  int64_t axis = shape.rank() == 1 ? 0 : 1;
  if (draw.Flag()) {
    axis = draw.Number(0, shape.rank() - 1);
    of.axis = axis;
  }
  Shape rows;
  for (int d = 0; d < shape.rank(); ++d) {
    if (d != axis) rows.AppendDim(shape.dim(d));
  }
  const int64_t classes = shape.dim(static_cast<int>(axis));
  of.x = draw.Values(shape);
  of.target = draw.Integers(rows, 0, classes - 1);
  if (draw.Flag()) of.weight = draw.Positive({classes});
  return of;
}

Configuration MakeNll(Draw& draw) {
  const Classification of = MakeClassification(draw);
  // The mean of no targets is NaN.
  const LossReduction reduction = Reduction(draw);
  const NllLossOptions options = {
      .reduction = reduction,
      .weight = of.weight,
      .axis = of.axis,
      .ignore_index = reduction == LossReduction::kMean ? -100 : draw.Number(0, 3)};
  return OfLoss(
      of.x, of.target, [=](const Tensor& x, const Tensor& t) { return NllLoss(x, t, options); },
      [=](const Tensor& g, const Tensor& x, const Tensor& t) {
        return NllLossBackward(g, x, t, options);
      });
}
Configuration MakeCrossEntropy(Draw& draw) {
  const Classification of = MakeClassification(draw);
  const LossReduction reduction = Reduction(draw);
  const CrossEntropyOptions options = {
      .weight = of.weight,
      .reduction = reduction,
      .axis = of.axis,
      .ignore_index = reduction == LossReduction::kMean ? -100 : draw.Number(0, 4),
      .label_smoothing = 0.25 * static_cast<double>(draw.Number(0, 4))};
  return OfLoss(
      of.x, of.target,
      [=](const Tensor& x, const Tensor& t) {
        return CrossEntropyWithStatistics(x, t, options).loss;
      },
      [=](const Tensor& g, const Tensor& x, const Tensor& t) {
        return CrossEntropyBackward(g, x, CrossEntropyWithStatistics(x, t, options), t, options);
      });
}

// ---------------------------------------------------------------- norms

Configuration MakeLayerNorm(Draw& draw) {
  const Shape shape = draw.RandomShape(1, 4, 4);
  const LayerNormOptions options = {.normalized_rank = draw.Number(1, shape.rank()), .eps = 0.1};
  const Shape of_parameters(shape.dims().last(static_cast<int>(options.normalized_rank)));
  const bool center = draw.Flag(), has_weight = draw.Flag();
  Tensors operands = {draw.Values(shape)};
  if (has_weight) {
    for (int i = 0; i < 2; ++i) operands.push_back(draw.Values(of_parameters));
  }
  const auto run = [=](const Tensors& in) {
    NormParameters parameters;
    if (has_weight) parameters = {in[1], in[2]};
    return center ? LayerNormWithStatistics(in[0], parameters, options)
                  : RmsNormWithStatistics(in[0], parameters, options);
  };
  return {
      operands, [=](const Tensors& in) { return run(in).y; },
      [=](const Tensors& in, const Tensor& g) {
        std::optional<Tensor> weight;
        if (has_weight) weight = in[1];
        if (center) {
          const NormGradients gradients = LayerNormBackward(g, in[0], run(in), weight, options);
          return Tensors{gradients.x, gradients.weight, gradients.bias};
        }
        const NormGradients gradients = RmsNormBackward(g, in[0], run(in), weight, options);
        std::vector<int64_t> rows(g.rank() - options.normalized_rank);
        for (size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<int64_t>(i);
        return Tensors{gradients.x, gradients.weight, rows.empty() ? g : Sum(g, {.axes = rows})};
      }};
}

Configuration MakeBatchNorm(Draw& draw) {
  Shape shape = draw.RandomShape(2, 5, 3);
  shape.set_dim(0, draw.Number(2, 4));
  const int64_t channels = shape.dim(1);
  const bool training = draw.Flag(), has_weight = draw.Flag();
  const BatchNormOptions options = {.eps = 0.1};
  const Tensor running_mean = draw.Values({channels}), running_var = draw.Positive({channels});
  Tensors operands = {draw.Values(shape)};
  if (has_weight) {
    for (int i = 0; i < 2; ++i) operands.push_back(draw.Values({channels}));
  }
  const auto parameters_of = [=](const Tensors& in) {
    return has_weight ? NormParameters{in[1], in[2]} : NormParameters{};
  };
  return {operands,
          [=](const Tensors& in) {
            return training
                       ? BatchNormInTraining(in[0], running_mean, running_var, parameters_of(in),
                                             options)
                             .y
                       : BatchNorm(in[0], running_mean, running_var, parameters_of(in), options);
          },
          [=](const Tensors& in, const Tensor& g) {
            Tensor mean = running_mean, invstd = Rsqrt(running_var + options.eps);
            if (training) {
              const BatchNormResult forward =
                  BatchNormInTraining(in[0], running_mean, running_var, parameters_of(in), options);
              mean = forward.mean;
              invstd = forward.invstd;
            }
            const NormGradients gradients =
                BatchNormBackward(g, in[0], mean, invstd, parameters_of(in).weight, training);
            return Tensors{gradients.x, gradients.weight, gradients.bias};
          }};
}

// ---------------------------------------------------------------- convolution, pooling

Configuration MakeConv(Draw& draw) {
  const int axes = static_cast<int>(draw.Number(1, 3));
  const int64_t groups = draw.Number(1, 3);
  const Ints kernel = draw.Numbers(axes, 1, axes == 3 ? 2 : 3);
  ConvOptions options = {.stride = draw.Numbers(axes, 1, 2),
                         .padding = draw.Numbers(2 * axes, 0, 2),
                         .dilation = draw.Numbers(axes, 1, 2),
                         .groups = groups};
  Shape of_x({draw.Number(1, 2), groups * draw.Number(1, 2)});
  Shape of_weight({groups * draw.Number(1, 2), of_x.dim(1) / groups});
  for (int d = 0; d < axes; ++d) {
    of_x.AppendDim((kernel[d] - 1) * options.dilation[d] + draw.Number(1, axes == 1 ? 5 : 2));
    of_weight.AppendDim(kernel[d]);
  }
  if (draw.Number(0, 3) == 0) {  // padding="same"
    options.stride.clear();
    options.padding.clear();
    options.same_padding = true;
  }
  const auto conv = axes == 1 ? Conv1d : axes == 2 ? Conv2d : Conv3d;
  return {{draw.Values(of_x), draw.Values(of_weight), draw.Values({of_weight.dim(0)})},
          [=](const Tensors& in) { return conv(in[0], in[1], in[2], options); },
          [=](const Tensors& in, const Tensor& g) {
            std::vector<int64_t> all_but_channels = {0};
            for (int d = 0; d < axes; ++d) all_but_channels.push_back(2 + d);
            return Tensors{ConvBackwardInput(g, in[1], of_x, options),
                           ConvBackwardWeight(g, in[0], of_weight, options),
                           Sum(g, {.axes = all_but_channels})};
          }};
}

// Draws windows, and returns the sizes of the axes that they slide along.
Ints DrawWindows(Draw& draw, bool dilate, PoolOptions* options) {
  const int axes = static_cast<int>(draw.Number(1, 3));
  options->kernel = draw.Numbers(axes, 1, 3);
  if (draw.Flag()) options->stride = draw.Numbers(axes, 1, 3);
  for (const int64_t size : options->kernel) options->padding.push_back(draw.Number(0, size / 2));
  if (dilate && draw.Flag()) options->dilation = draw.Numbers(axes, 1, 2);
  options->ceil_mode = draw.Flag();
  Ints sizes;
  for (int d = 0; d < axes; ++d) {
    const int64_t dilation = options->dilation.empty() ? 1 : options->dilation[d];
    sizes.push_back((options->kernel[d] - 1) * dilation + draw.Number(1, axes == 1 ? 9 : 3));
  }
  return sizes;
}

Shape PooledShape(Draw& draw, const Ints& sizes) {
  Shape shape = draw.RandomShape(0, sizes.size() == 3 ? 1 : 2, 2);
  for (const int64_t size : sizes) shape.AppendDim(size);
  return shape;
}

Configuration MakeMaxPool(Draw& draw) {
  PoolOptions options;
  const Ints sizes = DrawWindows(draw, true, &options);
  return {{draw.DistinctValues(PooledShape(draw, sizes))},
          [=](const Tensors& in) { return MaxPool(in[0], options); },
          [=](const Tensors& in, const Tensor& g) {
            const Tensor indices = MaxPoolWithIndices(in[0], options).indices;
            return Tensors{MaxPoolBackward(g, indices, sizes, options)};
          }};
}

Configuration MakeAvgPool(Draw& draw) {
  PoolOptions windows;
  const Ints sizes = DrawWindows(draw, false, &windows);
  const AvgPoolOptions options = {.kernel = windows.kernel,
                                  .stride = windows.stride,
                                  .padding = windows.padding,
                                  .ceil_mode = windows.ceil_mode,
                                  .count_include_pad = draw.Flag(),
                                  .divisor = draw.Number(0, 1) * draw.Number(1, 5)};
  return {
      {draw.Values(PooledShape(draw, sizes))},
      [=](const Tensors& in) { return AvgPool(in[0], options); },
      [=](const Tensors&, const Tensor& g) { return Tensors{AvgPoolBackward(g, sizes, options)}; }};
}

// ---------------------------------------------------------------- attention

Shape Join(const Shape& front, std::initializer_list<int64_t> back) {
  Shape shape = front;
  for (const int64_t dim : back) shape.AppendDim(dim);
  return shape;
}

Configuration MakeAttention(Draw& draw) {
  const Shape batch = draw.RandomShape(0, 1, 2);
  const int64_t shared = draw.Number(1, 2), heads = shared * draw.Number(1, 2);
  const int64_t length = draw.Number(1, 5), keys = draw.Number(1, 5), depth = draw.Number(1, 4);
  const bool has_heads = batch.rank() > 0 || draw.Flag();
  const auto shape = [&](int64_t h, int64_t rows, int64_t columns) {
    return has_heads ? Join(batch, {h, rows, columns}) : Shape({rows, columns});
  };
  AttentionOptions options;
  if (draw.Flag()) options.scale = 0.25 * static_cast<double>(draw.Number(1, 4));
  if (draw.Flag()) {
    options.dropout_p = 0.25;
    options.stream = RandomStream{draw.Number(0, 9), draw.Number(0, 9)};
  }
  Tensors operands = {draw.Values(shape(heads, length, depth)),
                      draw.Values(shape(shared, keys, depth)),
                      draw.Values(shape(shared, keys, draw.Number(1, 3)))};
  const int64_t kind = draw.Number(0, 3);
  const Shape of_mask =
      draw.Flag() ? shape(heads, length, keys) : Shape({draw.Flag() ? length : 1, keys});
  options.causal = kind == 1;
  if (kind == 2) options.mask = draw.Bools(of_mask);  // some rows may have no keys
  const bool differentiates_mask = kind == 3;
  if (differentiates_mask) operands.push_back(draw.Values(of_mask));
  const auto options_for = [=](const Tensors& in) {
    AttentionOptions result = options;
    if (differentiates_mask) result.mask = in[3];
    return result;
  };
  return {operands,
          [=](const Tensors& in) {
            return ScaledDotProductAttention(in[0], in[1], in[2], options_for(in));
          },
          [=](const Tensors& in, const Tensor& g) {
            const AttentionResult forward =
                ScaledDotProductAttentionWithStatistics(in[0], in[1], in[2], options_for(in));
            const AttentionGradients gradients = ScaledDotProductAttentionBackward(
                g, in[0], in[1], in[2], forward, options_for(in), differentiates_mask);
            return Tensors{gradients.q, gradients.k, gradients.v, gradients.mask};
          }};
}

Configuration MakeGroupNorm(Draw& draw) {
  const GroupNormOptions options = {.groups = draw.Number(1, 2)};
  const int64_t channels = options.groups * draw.Number(1, 3);
  Tensors operands = {draw.Values({draw.Number(1, 3), channels, draw.Number(2, 4)})};
  const bool has_weight = draw.Flag();
  if (has_weight) {
    operands.push_back(draw.Values({channels}));
    operands.push_back(draw.Values({channels}));
  }
  const auto forward = [=](const Tensors& in) {
    NormParameters parameters;
    if (has_weight) parameters = {in[1], in[2]};
    return GroupNormWithStatistics(in[0], options, parameters);
  };
  return {operands, [=](const Tensors& in) { return forward(in).y; },
          [=](const Tensors& in, const Tensor& g) {
            const auto weight = has_weight ? std::optional<Tensor>(in[1]) : std::nullopt;
            const NormGradients gradients =
                GroupNormBackward(g, in[0], forward(in), weight, options);
            if (!has_weight) return Tensors{gradients.x};
            return Tensors{gradients.x, gradients.weight, gradients.bias};
          }};
}

// ---------------------------------------------------------------- cells of recurrent layers

Configuration MakeLstmCell(Draw& draw) {
  const int64_t n = draw.Number(1, 3), size = draw.Number(1, 3);
  const bool of_c = draw.Flag();  // the gradient is that of c, not of h
  const Tensor zero = draw.Values({n, size}) * 0.0;
  return {{draw.Values({n, 4 * size}), draw.Values({n, 4 * size}), draw.Values({n, size})},
          [=](const Tensors& in) {
            const LstmCellResult result = LstmCell(in[0], in[1], in[2]);
            return of_c ? result.c : result.h;
          },
          [=](const Tensors& in, const Tensor& g) {
            const LstmCellResult forward = LstmCell(in[0], in[1], in[2]);
            const LstmCellGradients gradients =
                LstmCellBackward(of_c ? zero : g, of_c ? g : zero, in[2], forward);
            return Tensors{gradients.gates, gradients.gates, gradients.c};
          }};
}
Configuration MakeGruCell(Draw& draw) {
  const int64_t n = draw.Number(1, 3), size = draw.Number(1, 3);
  return {{draw.Values({n, 3 * size}), draw.Values({n, 3 * size}), draw.Values({n, size})},
          [=](const Tensors& in) { return GruCell(in[0], in[1], in[2]).h; },
          [=](const Tensors& in, const Tensor& g) {
            const GruCellGradients gradients = GruCellBackward(g, GruCell(in[0], in[1], in[2]));
            return Tensors{gradients.input_gates, gradients.hidden_gates, gradients.h};
          }};
}

// ---------------------------------------------------------------- indexing, dropout

Configuration MakeEmbedding(Draw& draw) {
  const int64_t rows = draw.Number(2, 5);
  const Tensor indices = draw.Integers(draw.RandomShape(0, 2, 4), -rows, rows - 1);
  // PyTorch's options padding_idx and scale_grad_by_freq change the gradient, but not the result.
  return {{draw.Values({rows, draw.Number(1, 3)})},
          [=](const Tensors& in) { return Embedding(indices, in[0]); },
          [=](const Tensors&, const Tensor& g) {
            return Tensors{EmbeddingBackward(g, indices, rows)};
          }};
}
Configuration MakeDropout(Draw& draw) {
  const double p = 0.25 * static_cast<double>(draw.Number(0, 4));
  const RandomStream stream = {draw.Number(0, 9), draw.Number(0, 9)};
  return OfArgument(
      draw, [=](const Tensor& x) { return Dropout(x, p, stream); },
      [=](const Tensor& g, const Tensor& x) {
        return DropoutBackward(g, DropoutWithMask(x, p, stream).mask, p);
      });
}
Configuration MakeSelect(Draw& draw) {
  const Shape shape = draw.RandomShape(1, 3, 4);
  const int64_t axis = draw.Number(-shape.rank(), shape.rank() - 1);
  const int64_t size = shape.dim(static_cast<int>(axis < 0 ? axis + shape.rank() : axis));
  const int64_t index = draw.Number(-size, size - 1);
  return {{draw.Values(shape)},
          [=](const Tensors& in) { return Select(in[0], axis, index); },
          [=](const Tensors&, const Tensor& g) {
            return Tensors{SelectBackward(g, shape, axis, index)};
          }};
}
Configuration MakeSlice(Draw& draw) {
  const Shape shape = draw.RandomShape(1, 3, 5);
  const SliceScatterOptions slice = {.axis = draw.Number(0, shape.rank() - 1),
                                     .start = draw.Number(-6, 6),
                                     .stop = draw.Flag() ? kToEnd : draw.Number(-6, 6),
                                     .step = draw.Number(1, 3)};
  return {{draw.Values(shape)},
          [=](const Tensors& in) {
            return Slice(in[0], {slice.start}, {slice.stop},
                         {.axes = {slice.axis}, .steps = {slice.step}});
          },
          [=](const Tensors&, const Tensor& g) { return Tensors{SliceBackward(g, shape, slice)}; }};
}

const Case kCases[] = {
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
    {{"softmax_backward"}, 12, MakeSoftmax},
    {{"mse_loss_backward"}, 6, MakeMse},
    {{"l1_loss_backward"}, 6, MakeL1},
    {{"smooth_l1_loss_backward"}, 10, MakeSmoothL1},
    {{"huber_loss_backward"}, 10, MakeHuber},
    {{"binary_cross_entropy_backward"}, 10, MakeBinaryCrossEntropy},
    {{"binary_cross_entropy_with_logits_backward"}, 16, MakeBinaryCrossEntropyWithLogits},
    {{"kl_div_backward"}, 10, MakeKlDiv},
    {{"nll_loss_backward"}, 20, MakeNll},
    {{"cross_entropy_backward", "cross_entropy_loss_backward"}, 20, MakeCrossEntropy},
    {{"layer_norm_backward"}, 20, MakeLayerNorm},
    {{"batch_norm_backward"}, 20, MakeBatchNorm},
    {{"conv_backward_input", "conv_backward_weight"}, 30, MakeConv},
    {{"max_pool_backward"}, 20, MakeMaxPool},
    {{"avg_pool_backward"}, 20, MakeAvgPool},
    {{"sdpa_backward"}, 30, MakeAttention},
    {{"group_norm_backward"}, 12, MakeGroupNorm},
    {{"lstm_cell_backward"}, 8, MakeLstmCell},
    {{"gru_cell_backward"}, 8, MakeGruCell},
    {{"EmbeddingBackward"}, 6, MakeEmbedding},
    {{"DropoutBackward"}, 6, MakeDropout},
    {{"SelectBackward"}, 6, MakeSelect},
    {{"SliceBackward"}, 12, MakeSlice},
};

}  // namespace

absl::Span<const Case> GradientCases() { return kCases; }

}  // namespace tensord::integration
