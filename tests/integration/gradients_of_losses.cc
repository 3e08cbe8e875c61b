// The gradients of softmax and of losses.
#include <optional>

#include "tensord/tests/integration/gradient_configurations.h"

namespace tensord::integration {
namespace {

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

const Case kLossCases[] = {
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
};

}  // namespace

absl::Span<const Case> LossCases() { return kLossCases; }

}  // namespace tensord::integration
