// Functions for training whose arguments differ from those of an op.
#include <iterator>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tensord/client/functional.h"
#include "tensord/client/indexing.h"
#include "tensord/client/losses.h"
#include "tensord/client/python/tensord/_core/function.h"
#include "tensord/client/random.h"

namespace tensord::python {
namespace {

std::optional<Tensor> TensorIfGiven(const Call& call, int i) {
  if (!call.has(i)) return std::nullopt;
  return call.tensor(i);
}

// In the readers of options, `first` is the position of the parameter after x and the target.
BinaryCrossEntropyWithLogitsOptions ReadLogits(const Call& call, int first) {
  return {ReadLossReduction(call, first + 2), TensorIfGiven(call, first),
          TensorIfGiven(call, first + 1)};
}
NllLossOptions ReadNll(const Call& call, int first) {
  NllLossOptions options = {.reduction = ReadLossReduction(call, first + 1),
                            .weight = TensorIfGiven(call, first),
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

#define TENSORD_LOGITS                                                 \
  ", weight: Tensor | None = None, pos_weight: Tensor | None = None, " \
  "reduction: str = \"mean\""
#define TENSORD_CLASSES                                                     \
  ", weight: Tensor | None = None, reduction: str = \"mean\", axis: int | " \
  "None = None, ignore_index: int = -100"

const Row kTrainingRows[] = {
    // Losses.
    {"binary_cross_entropy_with_logits", "x: Tensor, target: Tensor, /" TENSORD_LOGITS,
     "binary_cross_entropy of sigmoid(x), computed without overflow. pos_weight is a factor of the "
     "target in the loss.",
     TENSORD_RUN(BinaryCrossEntropyWithLogits(c.tensor(0), c.tensor(1), ReadLogits(c, 2)))},
    {"binary_cross_entropy_with_logits_backward",
     "gradient: Tensor, x: Tensor, target: Tensor, /" TENSORD_LOGITS,
     "The gradient of x for binary_cross_entropy_with_logits.",
     TENSORD_RUN(BinaryCrossEntropyWithLogitsBackward(c.tensor(0), c.tensor(1), c.tensor(2),
                                                      ReadLogits(c, 3)))},
    {"nll_loss", "x: Tensor, target: Tensor, /" TENSORD_CLASSES,
     "The mean of -weight[target] x[target], with x (...,C,...) and target (...) of int32 or "
     "int64. "
     "By default, the classes\nare axis 1, or axis 0 if x has one axis. The mean is divided by the "
     "sum of the targets' weights. A target\noutside [0, C) that isn't ignore_index is an error.",
     TENSORD_RUN(NllLoss(c.tensor(0), c.tensor(1), ReadNll(c, 2)))},
    {"nll_loss_backward", "gradient: Tensor, x: Tensor, target: Tensor, /" TENSORD_CLASSES,
     "The gradient of x for nll_loss.",
     TENSORD_RUN(NllLossBackward(c.tensor(0), c.tensor(1), c.tensor(2), ReadNll(c, 3)))},

    // Indexing and dropout.
    {"masked_fill", "x: Tensor, mask: Tensor, value: Tensor | Scalar, /",
     "x with value in place of the elements for which the mask is true.",
     TENSORD_RUN(MaskedFill(c.tensor(0), c.tensor(1), c.operand(2))), true},
    {"embedding_backward",
     "gradient: Tensor, indices: Tensor, /, rows: int, padding_idx: int | None = None, "
     "scale_grad_by_freq: bool = False",
     "The gradient of weight, which has this number of rows, for embedding(indices, weight). The "
     "row padding_idx gets 0.\nscale_grad_by_freq: each row is divided by how often the indices "
     "have it.",
     EmbeddingGradient},
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
  AddRows(m, tensor, kTrainingRows, /*are_methods=*/false);
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
