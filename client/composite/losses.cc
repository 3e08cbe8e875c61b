#include "tensord/client/composite/losses.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tensord/client/creation.h"
#include "tensord/client/indexing.h"
#include "tensord/client/internal/composite.h"
#include "tensord/common/shape.h"

namespace tensord {
namespace {

using internal::Composite;
using internal::Narrow;
using internal::Widen;

Tensor InvalidLoss(absl::string_view function, absl::string_view what) {
  return Tensor::Failed(absl::InvalidArgumentError(absl::StrCat(function, ": ", what)));
}

// Returns an error unless x and the target have one shape. Failed tensors have no shape to compare.
absl::Status CheckOneShape(absl::string_view function, const Tensor& x, const Tensor& target) {
  if (!x.ok() || !target.ok() || x.shape() == target.shape()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(function, ": x is ", x.spec().ToString(),
                                                 " and the target is ", target.spec().ToString(),
                                                 ": they must have one shape"));
}

Tensor WrongShape(absl::string_view function, absl::string_view what, const Tensor& x) {
  return InvalidLoss(
      function, absl::StrCat(what, " doesn't broadcast to the shape of x, ", x.shape().ToString()));
}

// Returns the mean or the sum of the elements' losses, or these as they are.
Tensor ReduceLosses(const Tensor& losses, LossReduction reduction) {
  switch (reduction) {
    case LossReduction::kNone:
      break;
    case LossReduction::kMean:
      return Mean(losses);
    case LossReduction::kSum:
      return Sum(losses);
  }
  return losses;
}

// Returns the reduction of function(x, target), which has the losses of elements.
template <typename Function>
Tensor Loss(absl::string_view name, const Tensor& x, const Tensor& target, LossReduction reduction,
            Function function) {
  if (absl::Status status = CheckOneShape(name, x, target); !status.ok()) {
    return Tensor::Failed(std::move(status));
  }
  const Tensor losses = function(Widen(x), Widen(target));
  if (losses.ok() && losses.shape() != x.shape()) return WrongShape(name, "a weight", x);
  return Composite(name, {x, target}, Narrow(ReduceLosses(losses, reduction), {&x, &target}));
}

// Returns the gradient of x, where function(x, target) has the derivatives of the elements' losses.
template <typename Function>
Tensor LossGradient(absl::string_view name, const Tensor& gradient, const Tensor& x,
                    const Tensor& target, LossReduction reduction, Function function) {
  if (absl::Status status = CheckOneShape(name, x, target); !status.ok()) {
    return Tensor::Failed(std::move(status));
  }
  const Tensor slopes = function(Widen(x), Widen(target));
  const bool mean = reduction == LossReduction::kMean && x.num_elements() > 0;
  const Tensor wide = Widen(gradient);
  const Tensor share = mean ? wide / static_cast<double>(x.num_elements()) : wide;
  const Tensor result = slopes * share;
  if (result.ok() && result.shape() != x.shape()) {
    return WrongShape(name, slopes.shape() == x.shape() ? "the gradient" : "a weight", x);
  }
  return Composite(name, {gradient, x, target}, Narrow(result, {&gradient, &x, &target}));
}

// Returns the loss of a difference: quadratic up to `limit`, then linear.
Tensor HuberOf(const Tensor& difference, double limit) {
  const Tensor distance = Abs(difference);
  const Tensor near = Minimum(distance, limit);
  return (near * -0.5 + distance) * near;
}

Tensor WeightedLosses(const Tensor& losses, const std::optional<Tensor>& weight) {
  return weight.has_value() ? losses * Widen(*weight) : losses;
}

// The targets of NllLoss.
struct ClassTargets {
  Tensor counts;   // bool: which targets aren't ignored
  Tensor index;    // the classes, with a class for ignored targets, and an axis of size 1 for them
  Tensor weights;  // of each target, 0 for ignored ones
  int axis;
};

// Reads the targets for x. If they, the axis or the weights don't fit x, returns an error.
absl::StatusOr<ClassTargets> ReadClassTargets(absl::string_view function, const Tensor& x,
                                              const Tensor& target, const NllLossOptions& options) {
  if (!x.ok()) return x.status();
  if (!target.ok()) return target.status();
  const auto invalid = [&](absl::string_view what) {
    return absl::InvalidArgumentError(absl::StrCat(function, ": ", what, "; x is ",
                                                   x.spec().ToString(), " and the target is ",
                                                   target.spec().ToString()));
  };
  if (x.rank() == 0) return invalid("a scalar has no classes");
  const absl::StatusOr<int> axis =
      NormalizeAxis(options.axis.value_or(x.rank() == 1 ? 0 : 1), x.rank());
  if (!axis.ok()) return invalid(axis.status().message());
  if (target.dtype() != DType::kInt32 && target.dtype() != DType::kInt64) {
    return invalid("the target must be int32 or int64");
  }
  Shape rows, column = x.shape();
  for (int d = 0; d < x.rank(); ++d) {
    if (d != *axis) rows.AppendDim(x.shape().dim(d));
  }
  if (target.shape() != rows) return invalid("the target must have x's shape without the classes");
  column.set_dim(*axis, 1);
  const int64_t classes = x.shape().dim(*axis);
  if (options.weight.has_value() && options.weight->ok() &&
      options.weight->shape() != Shape({classes})) {
    return invalid(absl::StrCat("the weight must have the shape [", classes, "]"));
  }

  ClassTargets read;
  read.axis = *axis;
  read.counts = Ne(target, options.ignore_index);
  // An index below 0 would count from the end, so it becomes one past the end.
  const Tensor valid = Where(Lt(target, 0), classes, target);
  const Tensor index = Where(read.counts, valid, 0);
  read.index = Reshape(index, column);
  const DType dtype = internal::Has16Bits(x.dtype()) ? DType::kFloat32 : x.dtype();
  if (options.weight.has_value()) {
    read.weights = Where(read.counts, Index(options.weight->To(dtype), {index}), 0.0);
  } else {
    read.weights = read.counts.To(dtype);
  }
  return read;
}

}  // namespace

Tensor MseLoss(const Tensor& x, const Tensor& target, LossReduction reduction) {
  return Loss("mse_loss", x, target, reduction, [](const Tensor& a, const Tensor& b) {
    const Tensor difference = a - b;
    return difference * difference;
  });
}

Tensor MseLossBackward(const Tensor& gradient, const Tensor& x, const Tensor& target,
                       LossReduction reduction) {
  return LossGradient("mse_loss_backward", gradient, x, target, reduction,
                      [](const Tensor& a, const Tensor& b) { return (a - b) * 2; });
}

Tensor L1Loss(const Tensor& x, const Tensor& target, LossReduction reduction) {
  return Loss("l1_loss", x, target, reduction,
              [](const Tensor& a, const Tensor& b) { return Abs(a - b); });
}

Tensor L1LossBackward(const Tensor& gradient, const Tensor& x, const Tensor& target,
                      LossReduction reduction) {
  return LossGradient("l1_loss_backward", gradient, x, target, reduction,
                      [](const Tensor& a, const Tensor& b) { return Sign(a - b); });
}

Tensor SmoothL1Loss(const Tensor& x, const Tensor& target, const SmoothL1LossOptions& options) {
  const double beta = options.beta;
  if (!(beta >= 0)) {
    return InvalidLoss("smooth_l1_loss",
                       absl::StrCat("beta is ", beta, " and must not be negative"));
  }
  return Loss("smooth_l1_loss", x, target, options.reduction,
              [&](const Tensor& a, const Tensor& b) {
                return beta == 0 ? Abs(a - b) : HuberOf(a - b, beta) / beta;
              });
}

Tensor SmoothL1LossBackward(const Tensor& gradient, const Tensor& x, const Tensor& target,
                            const SmoothL1LossOptions& options) {
  const double beta = options.beta;
  if (!(beta >= 0)) {
    return InvalidLoss("smooth_l1_loss_backward",
                       absl::StrCat("beta is ", beta, " and must not be negative"));
  }
  return LossGradient("smooth_l1_loss_backward", gradient, x, target, options.reduction,
                      [&](const Tensor& a, const Tensor& b) {
                        if (beta == 0) return Sign(a - b);
                        return Minimum(Maximum((a - b) / beta, -1), 1);
                      });
}

Tensor HuberLoss(const Tensor& x, const Tensor& target, const HuberLossOptions& options) {
  if (!(options.delta > 0)) {
    return InvalidLoss("huber_loss",
                       absl::StrCat("delta is ", options.delta, " and must be positive"));
  }
  return Loss("huber_loss", x, target, options.reduction,
              [&](const Tensor& a, const Tensor& b) { return HuberOf(a - b, options.delta); });
}

Tensor HuberLossBackward(const Tensor& gradient, const Tensor& x, const Tensor& target,
                         const HuberLossOptions& options) {
  if (!(options.delta > 0)) {
    return InvalidLoss("huber_loss_backward",
                       absl::StrCat("delta is ", options.delta, " and must be positive"));
  }
  return LossGradient("huber_loss_backward", gradient, x, target, options.reduction,
                      [&](const Tensor& a, const Tensor& b) {
                        return Minimum(Maximum(a - b, -options.delta), options.delta);
                      });
}

Tensor BinaryCrossEntropy(const Tensor& x, const Tensor& target,
                          const BinaryCrossEntropyOptions& options) {
  return Loss("binary_cross_entropy", x, target, options.reduction,
              [&](const Tensor& a, const Tensor& b) {
                constexpr double kSmallestLog = -100;
                const Tensor log = Maximum(Log(a), kSmallestLog);
                const Tensor log_of_rest = Maximum(Log1p(-a), kSmallestLog);
                return WeightedLosses((b - 1) * log_of_rest - b * log, options.weight);
              });
}

Tensor BinaryCrossEntropyBackward(const Tensor& gradient, const Tensor& x, const Tensor& target,
                                  const BinaryCrossEntropyOptions& options) {
  return LossGradient("binary_cross_entropy_backward", gradient, x, target, options.reduction,
                      [&](const Tensor& a, const Tensor& b) {
                        constexpr double kSmallestVariance = 1e-12;
                        const Tensor variance = Maximum((1 - a) * a, kSmallestVariance);
                        return WeightedLosses((a - b) / variance, options.weight);
                      });
}

Tensor BinaryCrossEntropyWithLogits(const Tensor& x, const Tensor& target,
                                    const BinaryCrossEntropyWithLogitsOptions& options) {
  return Loss("binary_cross_entropy_with_logits", x, target, options.reduction,
              [&](const Tensor& a, const Tensor& b) {
                const Tensor line = (1 - b) * a;
                const Tensor curve = Logaddexp(-a, 0);  // log(1 + exp(-x))
                if (!options.pos_weight.has_value()) {
                  return WeightedLosses(curve + line, options.weight);
                }
                const Tensor factor = Widen(*options.pos_weight) * b + (1 - b);
                return WeightedLosses(factor * curve + line, options.weight);
              });
}

Tensor BinaryCrossEntropyWithLogitsBackward(const Tensor& gradient, const Tensor& x,
                                            const Tensor& target,
                                            const BinaryCrossEntropyWithLogitsOptions& options) {
  return LossGradient("binary_cross_entropy_with_logits_backward", gradient, x, target,
                      options.reduction, [&](const Tensor& a, const Tensor& b) {
                        if (!options.pos_weight.has_value())
                          return WeightedLosses(Sigmoid(a) - b, options.weight);
                        const Tensor positive = b * Widen(*options.pos_weight) * Sigmoid(-a);
                        return WeightedLosses((1 - b) * Sigmoid(a) - positive, options.weight);
                      });
}

Tensor KlDiv(const Tensor& x, const Tensor& target, const KlDivOptions& options) {
  return Loss("kl_div", x, target, options.reduction, [&](const Tensor& a, const Tensor& b) {
    if (options.log_target) return Exp(b) * (b - a);
    const Tensor none = Eq(b, 0);
    return Where(none, 0, (Log(b) - a) * b);
  });
}

Tensor KlDivBackward(const Tensor& gradient, const Tensor& x, const Tensor& target,
                     const KlDivOptions& options) {
  return LossGradient(
      "kl_div_backward", gradient, x, target, options.reduction,
      [&](const Tensor&, const Tensor& b) { return options.log_target ? -Exp(b) : -b; });
}

Tensor NllLoss(const Tensor& x, const Tensor& target, const NllLossOptions& options) {
  const auto read = ReadClassTargets("nll_loss", x, target, options);
  if (!read.ok()) return Tensor::Failed(read.status());
  const Tensor picked = Reshape(Widen(Gather(x, read->axis, read->index)), target.shape());
  const Tensor losses = Where(read->counts, -(picked * read->weights), 0.0);
  Tensor result = losses;
  if (options.reduction != LossReduction::kNone) result = Sum(losses);
  if (options.reduction == LossReduction::kMean) result = result / Sum(read->weights);
  return Composite("nll_loss", {x, target}, result.To(x.dtype()));
}

Tensor NllLossBackward(const Tensor& gradient, const Tensor& x, const Tensor& target,
                       const NllLossOptions& options) {
  const auto read = ReadClassTargets("nll_loss_backward", x, target, options);
  if (!read.ok()) return Tensor::Failed(read.status());
  const Tensor& weights = read->weights;
  Tensor share = Widen(gradient);
  if (options.reduction == LossReduction::kMean) share = share / Sum(weights);
  const Tensor slopes = Where(read->counts, -(weights * share), 0.0);
  const Tensor column = Reshape(slopes, read->index.shape()).To(x.dtype());
  return Composite("nll_loss_backward", {gradient, x, target},
                   Scatter(Zeros(x.device(), x.shape(), {.dtype = x.dtype()}), read->axis,
                           read->index, column, {.donate = true}));
}

}  // namespace tensord
