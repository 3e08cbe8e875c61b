// Losses and their gradients. They are ops: the server builds them from other ops
// (common/ops/compositions/losses.cc). common/OPS.md lists their definitions. Names and meanings
// are PyTorch's.
//
// As in ops.h, no function waits, errors are in the result's status, and all functions are
// thread-safe. x is floating. The target of a loss of elements is floating, too, and the result has
// the dtype to which all operands are promoted. Results of losses of classes have x's dtype, except
// those of CrossEntropyWithStatistics. float16 and bfloat16 are computed in float32, also their
// sums, and rounded once.
//
// The functions whose names end in "Backward" return the gradient of x. They take the gradient of
// the loss, which has the shape [] unless the reduction is kNone, and the arguments of the loss.
#pragma once

#include <cstdint>
#include <optional>

#include "tensord/client/tensor.h"

namespace tensord {

enum class LossReduction {
  kNone,  // no reduction: a loss for each element or distribution
  kMean,  // the sum of the losses, divided by their number. A loss of classes divides by the sum of
          // the weights of the targets that aren't ignored
  kSum
};

// ---------------------------------------------------------------- regression

// x and the target have one shape. The losses of the elements are reduced: kMean divides their sum
// by their number, and gives NaN if there are none.

// Each loss is (x - target)².
Tensor MseLoss(const Tensor& x, const Tensor& target,
               LossReduction reduction = LossReduction::kMean);
Tensor MseLossBackward(const Tensor& gradient, const Tensor& x, const Tensor& target,
                       LossReduction reduction = LossReduction::kMean);

// Each loss is |x - target|. The gradient is 0 where x and the target are equal.
Tensor L1Loss(const Tensor& x, const Tensor& target,
              LossReduction reduction = LossReduction::kMean);
Tensor L1LossBackward(const Tensor& gradient, const Tensor& x, const Tensor& target,
                      LossReduction reduction = LossReduction::kMean);

struct SmoothL1LossOptions {
  LossReduction reduction = LossReduction::kMean;
  double beta = 1;  // not negative
};
// Each loss is d² / (2 beta) where d = |x - target| < beta, and d - beta / 2 elsewhere.
Tensor SmoothL1Loss(const Tensor& x, const Tensor& target, const SmoothL1LossOptions& options = {});
Tensor SmoothL1LossBackward(const Tensor& gradient, const Tensor& x, const Tensor& target,
                            const SmoothL1LossOptions& options = {});

struct HuberLossOptions {
  LossReduction reduction = LossReduction::kMean;
  double delta = 1;  // positive
};
// Each loss is d² / 2 where d = |x - target| < delta, and delta (d - delta / 2) elsewhere.
Tensor HuberLoss(const Tensor& x, const Tensor& target, const HuberLossOptions& options = {});
Tensor HuberLossBackward(const Tensor& gradient, const Tensor& x, const Tensor& target,
                         const HuberLossOptions& options = {});

// ---------------------------------------------------------------- probabilities

// These reduce as the losses above do. x and the target have one shape.

struct BinaryCrossEntropyOptions {
  LossReduction reduction = LossReduction::kMean;
  std::optional<Tensor> weight = {};  // a factor of each loss, which broadcasts; none: ones
};
// Each loss is -target log(x) - (1 - target) log(1 - x), with logarithms of at least -100. x must
// be from 0 to 1: outside, the result is NaN, whereas PyTorch returns an error.
Tensor BinaryCrossEntropy(const Tensor& x, const Tensor& target,
                          const BinaryCrossEntropyOptions& options = {});
Tensor BinaryCrossEntropyBackward(const Tensor& gradient, const Tensor& x, const Tensor& target,
                                  const BinaryCrossEntropyOptions& options = {});

struct BinaryCrossEntropyWithLogitsOptions {
  LossReduction reduction = LossReduction::kMean;
  std::optional<Tensor> weight = {};      // a factor of each loss, which broadcasts; none: ones
  std::optional<Tensor> pos_weight = {};  // a factor of `target` in the loss; none: ones
};
// Each loss is that of BinaryCrossEntropy for Sigmoid(x), computed without overflow. pos_weight
// broadcasts.
Tensor BinaryCrossEntropyWithLogits(const Tensor& x, const Tensor& target,
                                    const BinaryCrossEntropyWithLogitsOptions& options = {});
Tensor BinaryCrossEntropyWithLogitsBackward(
    const Tensor& gradient, const Tensor& x, const Tensor& target,
    const BinaryCrossEntropyWithLogitsOptions& options = {});

struct KlDivOptions {
  LossReduction reduction = LossReduction::kMean;  // PyTorch's "batchmean": kSum / the batch
  bool log_target = false;                         // the target has logarithms, too
};
// Each loss is target (log(target) - x), and 0 where the target is 0. x has logarithms of
// probabilities.
Tensor KlDiv(const Tensor& x, const Tensor& target, const KlDivOptions& options = {});
Tensor KlDivBackward(const Tensor& gradient, const Tensor& x, const Tensor& target,
                     const KlDivOptions& options = {});

// ---------------------------------------------------------------- classes

// If all targets are ignored, or there are none, the mean is NaN. If a target isn't in [0, C) and
// isn't ignored, the result fails with INVALID_ARGUMENT after the op has run.

struct NllLossOptions {
  LossReduction reduction = LossReduction::kMean;
  std::optional<Tensor> weight = {};  // (C): of each class; none: ones
  std::optional<int64_t> axis = {};   // of the classes; none: 1, or 0 if x has one dimension
  int64_t ignore_index = -100;        // a target of this value gives the loss 0 and no gradient
};
// Each loss is -weight[target] · x[target], with x (…,C,…), such as results of LogSoftmax, and
// target (…), int32 or int64. The result has x's dtype.
Tensor NllLoss(const Tensor& x, const Tensor& target, const NllLossOptions& options = {});
Tensor NllLossBackward(const Tensor& gradient, const Tensor& x, const Tensor& target,
                       const NllLossOptions& options = {});

struct CrossEntropyOptions {
  std::optional<Tensor> weight = {};  // (C): of each class; none: ones
  LossReduction reduction = LossReduction::kMean;
  std::optional<int64_t> axis = {};  // of the classes; none: 1, or 0 if x has one dimension
  int64_t ignore_index = -100;       // a target of this value gives the loss 0 and no gradient
  double label_smoothing = 0;  // the share of a target, from 0 to 1, that all classes get equally
};
// x and target are as for NllLoss. Without label_smoothing, each loss is
// -weight[target] · log(softmax(x))[target]; OPS.md has the formula with it. The result has x's
// dtype.
Tensor CrossEntropy(const Tensor& x, const Tensor& target, const CrossEntropyOptions& options = {});

// The dtype of all members is float64 if x is float64, otherwise float32.
struct CrossEntropyResult {
  Tensor loss;   // reduced, or of the shape of the target
  Tensor lse;    // log Σ exp(x), of the shape of the target
  Tensor total;  // the sum of the weights of the targets that aren't ignored
};
CrossEntropyResult CrossEntropyWithStatistics(const Tensor& x, const Tensor& target,
                                              const CrossEntropyOptions& options = {});
// `forward` is the result of CrossEntropyWithStatistics for the same arguments. The function reads
// only its lse and total.
Tensor CrossEntropyBackward(const Tensor& gradient, const Tensor& x,
                            const CrossEntropyResult& forward, const Tensor& target,
                            const CrossEntropyOptions& options = {});

}  // namespace tensord
