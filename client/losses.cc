#include "tensord/client/losses.h"

#include <algorithm>
#include <string>

#include "absl/container/inlined_vector.h"
#include "tensord/client/creation.h"
#include "tensord/client/internal/enqueue.h"

namespace tensord {
namespace {

using InputPointers = absl::InlinedVector<const Tensor*, 8>;

std::string ReductionName(LossReduction reduction) {
  switch (reduction) {
    case LossReduction::kNone:
      return "none";
    case LossReduction::kSum:
      return "sum";
    case LossReduction::kMean:
      break;
  }
  return "mean";
}

Attributes ToAttrs(LossReduction reduction) { return {{"reduction", ReductionName(reduction)}}; }
Attributes ToAttrs(const SmoothL1LossOptions& options) {
  return {{"reduction", ReductionName(options.reduction)}, {"beta", options.beta}};
}
Attributes ToAttrs(const HuberLossOptions& options) {
  return {{"reduction", ReductionName(options.reduction)}, {"delta", options.delta}};
}
Attributes ToAttrs(const KlDivOptions& options) {
  return {{"reduction", ReductionName(options.reduction)}, {"log_target", options.log_target}};
}

int64_t ClassAxis(const Tensor& x, const std::optional<int64_t>& axis) {
  if (axis.has_value()) return *axis;
  return x.ok() ? std::clamp<int64_t>(x.rank() - 1, 0, 1) : 0;
}

Attributes ToAttrs(const Tensor& x, const NllLossOptions& options) {
  return {{"axis", ClassAxis(x, options.axis)},
          {"ignore_index", options.ignore_index},
          {"reduction", ReductionName(options.reduction)}};
}
Attributes ToAttrs(const Tensor& x, const CrossEntropyOptions& options) {
  return {{"axis", ClassAxis(x, options.axis)},
          {"ignore_index", options.ignore_index},
          {"label_smoothing", options.label_smoothing},
          {"reduction", ReductionName(options.reduction)}};
}

internal::Tensors RunAll(absl::string_view op, InputPointers inputs, const Attributes& attrs,
                         const std::optional<Tensor>& weight, size_t count) {
  if (weight.has_value()) inputs.push_back(&*weight);
  return internal::EnqueueAllOrFailed(op, inputs, attrs, count);
}

Tensor Run(absl::string_view op, const InputPointers& inputs, const Attributes& attrs,
           const std::optional<Tensor>& weight = {}) {
  return RunAll(op, inputs, attrs, weight, 1)[0];
}

Tensor RunWithLogits(absl::string_view op, InputPointers inputs, const Tensor& x,
                     const BinaryCrossEntropyWithLogitsOptions& options) {
  const Attributes attrs = ToAttrs(options.reduction);
  if (!options.pos_weight.has_value()) return Run(op, inputs, attrs, options.weight);
  if (!x.ok()) return x;
  // pos_weight is the input after weight. If the caller gives no weight, sends the number 1 in its
  // place.
  const Tensor weight = options.weight.has_value()
                            ? *options.weight
                            : FromScalar(x.device(), 1.0, {.dtype = x.dtype()});
  inputs.push_back(&weight);
  return Run(op, inputs, attrs, options.pos_weight);
}

}  // namespace

Tensor MseLoss(const Tensor& x, const Tensor& target, LossReduction reduction) {
  return Run("mse_loss", {&x, &target}, ToAttrs(reduction));
}

Tensor MseLossBackward(const Tensor& gradient, const Tensor& x, const Tensor& target,
                       LossReduction reduction) {
  return Run("mse_loss_backward", {&gradient, &x, &target}, ToAttrs(reduction));
}

Tensor L1Loss(const Tensor& x, const Tensor& target, LossReduction reduction) {
  return Run("l1_loss", {&x, &target}, ToAttrs(reduction));
}

Tensor L1LossBackward(const Tensor& gradient, const Tensor& x, const Tensor& target,
                      LossReduction reduction) {
  return Run("l1_loss_backward", {&gradient, &x, &target}, ToAttrs(reduction));
}

Tensor SmoothL1Loss(const Tensor& x, const Tensor& target, const SmoothL1LossOptions& options) {
  return Run("smooth_l1_loss", {&x, &target}, ToAttrs(options));
}

Tensor SmoothL1LossBackward(const Tensor& gradient, const Tensor& x, const Tensor& target,
                            const SmoothL1LossOptions& options) {
  return Run("smooth_l1_loss_backward", {&gradient, &x, &target}, ToAttrs(options));
}

Tensor HuberLoss(const Tensor& x, const Tensor& target, const HuberLossOptions& options) {
  return Run("huber_loss", {&x, &target}, ToAttrs(options));
}

Tensor HuberLossBackward(const Tensor& gradient, const Tensor& x, const Tensor& target,
                         const HuberLossOptions& options) {
  return Run("huber_loss_backward", {&gradient, &x, &target}, ToAttrs(options));
}

Tensor BinaryCrossEntropy(const Tensor& x, const Tensor& target,
                          const BinaryCrossEntropyOptions& options) {
  return Run("binary_cross_entropy", {&x, &target}, ToAttrs(options.reduction), options.weight);
}

Tensor BinaryCrossEntropyBackward(const Tensor& gradient, const Tensor& x, const Tensor& target,
                                  const BinaryCrossEntropyOptions& options) {
  return Run("binary_cross_entropy_backward", {&gradient, &x, &target}, ToAttrs(options.reduction),
             options.weight);
}

Tensor BinaryCrossEntropyWithLogits(const Tensor& x, const Tensor& target,
                                    const BinaryCrossEntropyWithLogitsOptions& options) {
  return RunWithLogits("binary_cross_entropy_with_logits", {&x, &target}, x, options);
}

Tensor BinaryCrossEntropyWithLogitsBackward(const Tensor& gradient, const Tensor& x,
                                            const Tensor& target,
                                            const BinaryCrossEntropyWithLogitsOptions& options) {
  return RunWithLogits("binary_cross_entropy_with_logits_backward", {&gradient, &x, &target}, x,
                       options);
}

Tensor KlDiv(const Tensor& x, const Tensor& target, const KlDivOptions& options) {
  return Run("kl_div", {&x, &target}, ToAttrs(options));
}

Tensor KlDivBackward(const Tensor& gradient, const Tensor& x, const Tensor& target,
                     const KlDivOptions& options) {
  return Run("kl_div_backward", {&gradient, &x, &target}, ToAttrs(options));
}

Tensor NllLoss(const Tensor& x, const Tensor& target, const NllLossOptions& options) {
  return RunAll("nll_loss", {&x, &target}, ToAttrs(x, options), options.weight, 2)[0];
}

Tensor NllLossBackward(const Tensor& gradient, const Tensor& x, const Tensor& target,
                       const NllLossOptions& options) {
  return Run("nll_loss_backward", {&gradient, &x, &target}, ToAttrs(x, options), options.weight);
}

CrossEntropyResult CrossEntropyWithStatistics(const Tensor& x, const Tensor& target,
                                              const CrossEntropyOptions& options) {
  const internal::Tensors outputs =
      RunAll("cross_entropy_loss", {&x, &target}, ToAttrs(x, options), options.weight, 3);
  return {outputs[0], outputs[1], outputs[2]};
}

Tensor CrossEntropy(const Tensor& x, const Tensor& target, const CrossEntropyOptions& options) {
  const Tensor loss = CrossEntropyWithStatistics(x, target, options).loss;
  return loss.ok() && x.ok() ? loss.To(x.dtype()) : loss;
}

Tensor CrossEntropyBackward(const Tensor& gradient, const Tensor& x,
                            const CrossEntropyResult& forward, const Tensor& target,
                            const CrossEntropyOptions& options) {
  return Run("cross_entropy_loss_backward", {&gradient, &x, &forward.lse, &target, &forward.total},
             ToAttrs(x, options), options.weight);
}

}  // namespace tensord
