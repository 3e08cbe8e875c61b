// The functions of client/composite for training: activations, losses, their gradients, and steps
// of optimizers.
#include <iterator>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tensord/client/composite/indexing.h"
#include "tensord/client/composite/losses.h"
#include "tensord/client/composite/optimizers.h"
#include "tensord/client/composite/random.h"
#include "tensord/client/python/tensord/_core/function.h"
#include "tensord/client/random.h"

namespace tensord::python {
namespace {

std::optional<Tensor> TensorIfGiven(const Call& call, int i) {
  if (!call.has(i)) return std::nullopt;
  return call.tensor(i);
}

// In the readers of options, `first` is the position of the parameter after x and the target.
SmoothL1LossOptions ReadSmoothL1(const Call& call, int first) {
  return {ReadLossReduction(call, first), call.number(first + 1, 1)};
}
HuberLossOptions ReadHuber(const Call& call, int first) {
  return {ReadLossReduction(call, first), call.number(first + 1, 1)};
}
BinaryCrossEntropyOptions ReadBinary(const Call& call, int first) {
  return {ReadLossReduction(call, first), TensorIfGiven(call, first + 1)};
}
BinaryCrossEntropyWithLogitsOptions ReadLogits(const Call& call, int first) {
  return {ReadLossReduction(call, first), TensorIfGiven(call, first + 1),
          TensorIfGiven(call, first + 2)};
}
KlDivOptions ReadKlDiv(const Call& call, int first) {
  return {ReadLossReduction(call, first), call.flag(first + 1)};
}
NllLossOptions ReadNll(const Call& call, int first) {
  NllLossOptions options = {.reduction = ReadLossReduction(call, first),
                            .weight = TensorIfGiven(call, first + 1),
                            .ignore_index = call.integer(first + 3, -100)};
  if (call.has(first + 2)) options.axis = call.integer(first + 2);
  return options;
}

Tensor EmbeddingGradient(const Call& call) {
  EmbeddingBackwardOptions options = {.scale_grad_by_freq = call.flag(4)};
  if (call.has(3)) options.padding_idx = call.integer(3);
  return EmbeddingBackward(call.tensor(0), call.tensor(1), call.integer(2), options);
}

Tensor SliceGradient(const Call& call) {
  return SliceBackward(
      call.tensor(0), call.shape(1),
      {call.integer(2, 0), call.integer(3, 0), call.integer(4, kToEnd), call.integer(5, 1)});
}

nb::object RunSgdStep(const Call& call) {
  const SgdState next =
      SgdStep({call.tensor(0), TensorIfGiven(call, 2)}, call.tensor(1), call.operand(3),
              {.momentum = call.number(4, 0),
               .dampening = call.number(5, 0),
               .weight_decay = call.number(6, 0),
               .nesterov = call.flag(7),
               .maximize = call.flag(8)});
  nb::object p = Wrap(next.p);
  if (!next.buffer.has_value()) return nb::make_tuple(p);
  return nb::make_tuple(p, Wrap(*next.buffer));
}

nb::object RunDropoutWithMask(const Call& call) {
  DropoutResult result = DropoutWithMask(call.tensor(0), call.number(1), ReadSource(call, 2));
  return nb::make_tuple(Wrap(std::move(result.output)), Wrap(std::move(result.mask)));
}

struct TrainingRow {
  const char* name;
  const char* parameters;
  const char* doc;
  Tensor (*run)(const Call&);
  bool is_method = false;
};

#define TENSORD_RUN_TRAINING(expression) [](const Call& c) -> Tensor { return expression; }
#define TENSORD_LOSS "x: Tensor, target: Tensor, /, reduction: str = \"mean\""
#define TENSORD_LOSS_GRADIENT \
  "gradient: Tensor, x: Tensor, target: Tensor, /, reduction: str = \"mean\""
#define TENSORD_WEIGHT ", weight: Tensor | None = None"
#define TENSORD_CLASSES ", axis: int | None = None, ignore_index: int = -100"

const TrainingRow kTrainingRows[] = {
    // Losses.
    {"mse_loss", TENSORD_LOSS,
     "The mean of the squared differences. reduction: \"none\", \"mean\" or \"sum\".",
     TENSORD_RUN_TRAINING(MseLoss(c.tensor(0), c.tensor(1), ReadLossReduction(c, 2)))},
    {"mse_loss_backward", TENSORD_LOSS_GRADIENT, "The gradient of x for mse_loss.",
     TENSORD_RUN_TRAINING(
         MseLossBackward(c.tensor(0), c.tensor(1), c.tensor(2), ReadLossReduction(c, 3)))},
    {"l1_loss", TENSORD_LOSS,
     "The mean of the absolute differences. reduction: \"none\", \"mean\" or \"sum\".",
     TENSORD_RUN_TRAINING(L1Loss(c.tensor(0), c.tensor(1), ReadLossReduction(c, 2)))},
    {"l1_loss_backward", TENSORD_LOSS_GRADIENT, "The gradient of x for l1_loss.",
     TENSORD_RUN_TRAINING(
         L1LossBackward(c.tensor(0), c.tensor(1), c.tensor(2), ReadLossReduction(c, 3)))},
    {"smooth_l1_loss", TENSORD_LOSS ", beta: float = 1.0",
     "The mean of d * d / (2 beta) where d = |x - target| < beta, and of d - beta / 2 elsewhere.",
     TENSORD_RUN_TRAINING(SmoothL1Loss(c.tensor(0), c.tensor(1), ReadSmoothL1(c, 2)))},
    {"smooth_l1_loss_backward", TENSORD_LOSS_GRADIENT ", beta: float = 1.0",
     "The gradient of x for smooth_l1_loss.",
     TENSORD_RUN_TRAINING(
         SmoothL1LossBackward(c.tensor(0), c.tensor(1), c.tensor(2), ReadSmoothL1(c, 3)))},
    {"huber_loss", TENSORD_LOSS ", delta: float = 1.0",
     "The mean of d * d / 2 where d = |x - target| < delta, and of delta (d - delta / 2) "
     "elsewhere.",
     TENSORD_RUN_TRAINING(HuberLoss(c.tensor(0), c.tensor(1), ReadHuber(c, 2)))},
    {"huber_loss_backward", TENSORD_LOSS_GRADIENT ", delta: float = 1.0",
     "The gradient of x for huber_loss.",
     TENSORD_RUN_TRAINING(
         HuberLossBackward(c.tensor(0), c.tensor(1), c.tensor(2), ReadHuber(c, 3)))},
    {"binary_cross_entropy", TENSORD_LOSS TENSORD_WEIGHT,
     "The mean of -target log(x) - (1 - target) log(1 - x), with x from 0 to 1. The weight is a "
     "factor of each loss.",
     TENSORD_RUN_TRAINING(BinaryCrossEntropy(c.tensor(0), c.tensor(1), ReadBinary(c, 2)))},
    {"binary_cross_entropy_backward", TENSORD_LOSS_GRADIENT TENSORD_WEIGHT,
     "The gradient of x for binary_cross_entropy.",
     TENSORD_RUN_TRAINING(
         BinaryCrossEntropyBackward(c.tensor(0), c.tensor(1), c.tensor(2), ReadBinary(c, 3)))},
    {"binary_cross_entropy_with_logits",
     TENSORD_LOSS TENSORD_WEIGHT ", pos_weight: Tensor | None = None",
     "binary_cross_entropy of sigmoid(x), computed without overflow. pos_weight is a factor of the "
     "target in the loss.",
     TENSORD_RUN_TRAINING(
         BinaryCrossEntropyWithLogits(c.tensor(0), c.tensor(1), ReadLogits(c, 2)))},
    {"binary_cross_entropy_with_logits_backward",
     TENSORD_LOSS_GRADIENT TENSORD_WEIGHT ", pos_weight: Tensor | None = None",
     "The gradient of x for binary_cross_entropy_with_logits.",
     TENSORD_RUN_TRAINING(BinaryCrossEntropyWithLogitsBackward(c.tensor(0), c.tensor(1),
                                                               c.tensor(2), ReadLogits(c, 3)))},
    {"kl_div", TENSORD_LOSS ", log_target: bool = False",
     "The mean of target (log(target) - x), where x has logarithms of probabilities. log_target: "
     "the target has them, too.",
     TENSORD_RUN_TRAINING(KlDiv(c.tensor(0), c.tensor(1), ReadKlDiv(c, 2)))},
    {"kl_div_backward", TENSORD_LOSS_GRADIENT ", log_target: bool = False",
     "The gradient of x for kl_div.",
     TENSORD_RUN_TRAINING(KlDivBackward(c.tensor(0), c.tensor(1), c.tensor(2), ReadKlDiv(c, 3)))},
    {"nll_loss", TENSORD_LOSS TENSORD_WEIGHT TENSORD_CLASSES,
     "The mean of -weight[target] x[target], with x (...,C,...) and target (...) of int32 or "
     "int64. "
     "By default, the classes\nare axis 1, or axis 0 if x has one axis. The mean is divided by the "
     "sum of the targets' weights. A target\noutside [0, C) that isn't ignore_index is an error.",
     TENSORD_RUN_TRAINING(NllLoss(c.tensor(0), c.tensor(1), ReadNll(c, 2)))},
    {"nll_loss_backward", TENSORD_LOSS_GRADIENT TENSORD_WEIGHT TENSORD_CLASSES,
     "The gradient of x for nll_loss.",
     TENSORD_RUN_TRAINING(NllLossBackward(c.tensor(0), c.tensor(1), c.tensor(2), ReadNll(c, 3)))},

    // Indexing and dropout.
    {"masked_fill", "x: Tensor, mask: Tensor, value: Tensor | Scalar, /",
     "x with value in place of the elements for which the mask is true.",
     TENSORD_RUN_TRAINING(MaskedFill(c.tensor(0), c.tensor(1), c.operand(2))), true},
    {"embedding_backward",
     "gradient: Tensor, indices: Tensor, /, rows: int, padding_idx: int | None = None, "
     "scale_grad_by_freq: bool = False",
     "The gradient of weight, which has this number of rows, for embedding(indices, weight). The "
     "row padding_idx gets 0.\nscale_grad_by_freq: each row is divided by how often the indices "
     "have it.",
     EmbeddingGradient},
    {"dropout_backward", "gradient: Tensor, mask: Tensor, /, p: float",
     "The gradient of x for dropout_with_mask(x, p).",
     TENSORD_RUN_TRAINING(DropoutBackward(c.tensor(0), c.tensor(1), c.number(2)))},
    {"select_backward", "gradient: Tensor, /, shape: Sequence[int], axis: int, index: int",
     "The gradient of x, which has this shape, for select(x, axis, index).",
     TENSORD_RUN_TRAINING(SelectBackward(c.tensor(0), c.shape(1), c.integer(2), c.integer(3)))},
    {"slice_backward",
     "gradient: Tensor, /, shape: Sequence[int], axis: int = 0, start: int | None = None, "
     "stop: int | None = None, step: int = 1",
     "The gradient of x, which has this shape, for x[start:stop:step] along an axis.",
     SliceGradient},
};

}  // namespace

LossReduction ReadLossReduction(const Call& call, int i) {
  const std::string name = call.has(i) ? call.text(i) : "mean";
  if (name == "none") return LossReduction::kNone;
  if (name == "sum") return LossReduction::kSum;
  if (name == "mean") return LossReduction::kMean;
  RaiseValueError(absl::StrCat(call.function(), "(): reduction is \"", name,
                               "\", and must be \"none\", \"mean\" or \"sum\""));
}

void AddTrainingFunctions(nb::module_& m, nb::class_<Box>& tensor) {
  for (const TrainingRow& row : kTrainingRows) {
    AddFunction(m, tensor,
                {.name = row.name,
                 .parameters = row.parameters,
                 .returns = "Tensor",
                 .doc = row.doc,
                 .body = [run = row.run](const Call& call) { return Wrap(run(call)); },
                 .is_method = row.is_method});
  }
  AddFunction(
      m, tensor,
      {.name = "dropout_with_mask",
       .parameters = "x: Tensor, /, p: float, *, generator: Generator | Tensor | int | None = None",
       .returns = "tuple[Tensor, Tensor]",
       .doc = "dropout in training, and the mask, which is True for the kept elements. The mask is "
              "for dropout_backward.",
       .body = RunDropoutWithMask,
       .is_method = false});
  AddFunction(
      m, tensor,
      {.name = "sgd_step",
       .parameters =
           "p: Tensor, gradient: Tensor, /, buffer: Tensor | None = None, *, lr: Tensor | "
           "Scalar, momentum: float = 0.0, dampening: float = 0.0, weight_decay: float = "
           "0.0, nesterov: bool = False, maximize: bool = False",
       .returns = "tuple[Tensor, ...]",
       .doc =
           "The parameter after a step of stochastic gradient descent, as torch.optim.SGD "
           "computes it, and, with a\nmomentum, its buffer for the next step. The first step has "
           "no buffer.",
       .body = RunSgdStep,
       .is_method = false});
}

}  // namespace tensord::python
