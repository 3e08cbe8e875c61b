// Losses of margins between the scores of classes, as compositions of PyTorch's ops.
#include <ATen/core/Reduction.h>
#include <ATen/native/LossMulti.h>

#include "kernels.h"
#include "value_errors.h"

namespace torch_tensord {
namespace {

using at::Tensor;

Tensor ReduceLoss(const Tensor& loss, int64_t reduction) {
  if (reduction == at::Reduction::None) return loss;
  return reduction == at::Reduction::Mean ? loss.mean() : loss.sum();
}
// Returns the gradient of each row, (rows, 1).
Tensor RowGradient(const Tensor& gradient, int64_t rows, int64_t reduction) {
  const Tensor g = reduction == at::Reduction::Mean ? gradient.div(rows) : gradient;
  return g.reshape({-1, 1}).expand({rows, 1});
}

// ---- one class. The loss of a row is the sum of max(0, margin - x[y] + x[j])ᵖ / C over j != y.

struct Margins {
  Tensor z;       // (N, C): margin - x[y] + x[j], 0 if negative and at y
  Tensor target;  // (N, 1)
  Tensor scale;   // (N, 1): weight[y] / C
};
constexpr Origin kMultiMargin{nullptr, "multi_margin_loss", "the target", true};
Margins MarginsOf(const Tensor& self, const Tensor& given_target, const at::Scalar& margin,
                  const std::optional<Tensor>& weight) {
  CommonDevice("multi_margin_loss", {&self, &given_target});
  const OriginScope scope(kMultiMargin);
  int64_t rows = 0, classes = 0;
  at::native::multi_margin_loss_shape_check(rows, classes, self.dim(), self, given_target, weight);
  const Tensor x = self.dim() == 2 ? self : self.reshape({1, -1});
  Margins margins;
  margins.target = given_target.reshape({-1, 1});
  const Tensor z = x.sub(x.gather(1, margins.target)).add(margin).clamp_min(0);
  margins.z = z.scatter(1, margins.target, 0);
  const double count = static_cast<double>(x.size(1));
  margins.scale =
      IsGiven(weight)
          ? weight->index_select(0, margins.target.reshape({-1})).div(count).unsqueeze(1)
          : at::full({x.size(0), 1}, 1 / count, x.options());
  return margins;
}
Tensor MultiMarginLoss(const Tensor& self, const Tensor& target, const at::Scalar& p,
                       const at::Scalar& margin, const std::optional<Tensor>& weight,
                       int64_t reduction) {
  TORCH_CHECK(p.equal(1) || p.equal(2), "only p == 1 and p == 2 supported");
  const Margins margins = MarginsOf(self, target, margin, weight);
  const Tensor power = p.equal(1) ? margins.z : margins.z.mul(margins.z);
  const Tensor loss = power.mul(margins.scale).sum(1);
  return ReduceLoss(target.dim() == 0 && reduction == at::Reduction::None ? loss.squeeze(0) : loss,
                    reduction);
}
Tensor& MultiMarginLossOut(const Tensor& self, const Tensor& target, const at::Scalar& p,
                           const at::Scalar& margin, const std::optional<Tensor>& weight,
                           int64_t reduction, Tensor& out) {
  return CopyToOut(out, MultiMarginLoss(self, target, p, margin, weight, reduction));
}
Tensor MultiMarginBackward(const Tensor& gradient, const Tensor& self, const Tensor& target,
                           const at::Scalar& p, const at::Scalar& margin,
                           const std::optional<Tensor>& weight, int64_t reduction) {
  const Margins margins = MarginsOf(self, target, margin, weight);
  Tensor slope = margins.z.gt(0).to(self.scalar_type());
  if (!p.equal(1)) slope = margins.z.mul(2);
  slope = slope.mul(margins.scale).mul(RowGradient(gradient, margins.z.size(0), reduction));
  return slope.scatter(1, margins.target, slope.sum(1, true).neg()).reshape(self.sizes());
}
Tensor& MultiMarginBackwardOut(const Tensor& gradient, const Tensor& self, const Tensor& target,
                               const at::Scalar& p, const at::Scalar& margin,
                               const std::optional<Tensor>& weight, int64_t reduction,
                               Tensor& out) {
  return CopyToOut(out, MultiMarginBackward(gradient, self, target, p, margin, weight, reduction));
}

// ---- several classes. A row of the target lists classes up to the first negative number. The loss
// is the sum of max(0, 1 - x[k] + x[i]) / C over classes k of the list and i that aren't in it.

struct Lists {
  Tensor classes;    // (N, C): those of the list, or 0
  Tensor is_target;  // (N, C)
  Tensor z;          // (N, C, C): max(0, 1 - x[k] + x[i]), 0 where the pair doesn't count
};
constexpr Origin kMultiLabel{nullptr, "multilabel_margin_loss", "the target"};
Lists ListsOf(const Tensor& self, const Tensor& given_target) {
  CommonDevice("multilabel_margin_loss", {&self, &given_target});
  const OriginScope scope(kMultiLabel);
  int64_t rows = 0, classes = 0;
  at::native::multilabel_margin_loss_shape_check(rows, classes, self.dim(), self, given_target);
  const Tensor x = self.dim() == 2 ? self : self.reshape({1, -1});
  const Tensor target = given_target.reshape(x.sizes());
  const Tensor listed = target.ge(0).to(at::kLong).cumprod(1);
  Lists lists;
  lists.classes = target.clamp_min(0).mul(listed);
  lists.is_target = at::zeros_like(target).scatter_add(1, lists.classes, listed).gt(0);
  const Tensor own = x.gather(1, lists.classes);
  const Tensor z = x.unsqueeze(1).sub(own.unsqueeze(2)).add(1).clamp_min(0);
  const Tensor counts =
      listed.gt(0).unsqueeze(2).logical_and(lists.is_target.logical_not().unsqueeze(1));
  lists.z = z.masked_fill(counts.logical_not(), 0);
  return lists;
}
std::tuple<Tensor, Tensor> MultiLabelLoss(const Tensor& self, const Tensor& target,
                                          int64_t reduction) {
  const Lists lists = ListsOf(self, target);
  const Tensor loss = lists.z.sum({1, 2}).div(lists.z.size(2));
  const bool scalar = self.dim() < 2 && reduction == at::Reduction::None;
  return {ReduceLoss(scalar ? loss.squeeze(0) : loss, reduction),
          lists.is_target.to(self.scalar_type()).reshape(target.sizes())};
}
std::tuple<Tensor&, Tensor&> MultiLabelLossOut(const Tensor& self, const Tensor& target,
                                               int64_t reduction, Tensor& out, Tensor& is_target) {
  const auto [loss, flags] = MultiLabelLoss(self, target, reduction);
  return {CopyToOut(out, loss), CopyToOut(is_target, flags)};
}
Tensor MultiLabelBackward(const Tensor& gradient, const Tensor& self, const Tensor& target,
                          int64_t reduction, const Tensor&) {
  const Lists lists = ListsOf(self, target);
  const Tensor active = lists.z.gt(0).to(self.scalar_type());
  const Tensor away =
      at::zeros_like(active.select(1, 0)).scatter_add(1, lists.classes, active.sum(2));
  const Tensor slope = active.sum(1).sub(away).div(lists.z.size(2));
  return slope.mul(RowGradient(gradient, slope.size(0), reduction)).reshape(self.sizes());
}
Tensor& MultiLabelBackwardOut(const Tensor& gradient, const Tensor& self, const Tensor& target,
                              int64_t reduction, const Tensor& is_target, Tensor& out) {
  return CopyToOut(out, MultiLabelBackward(gradient, self, target, reduction, is_target));
}

}  // namespace

TENSORD_KERNELS(m) {
  m.impl("multi_margin_loss", MultiMarginLoss);
  m.impl("multi_margin_loss.out", MultiMarginLossOut);
  m.impl("multi_margin_loss_backward", MultiMarginBackward);
  m.impl("multi_margin_loss_backward.grad_input", MultiMarginBackwardOut);
  m.impl("multilabel_margin_loss_forward", MultiLabelLoss);
  m.impl("multilabel_margin_loss_forward.output", MultiLabelLossOut);
  m.impl("multilabel_margin_loss_backward", MultiLabelBackward);
  m.impl("multilabel_margin_loss_backward.grad_input", MultiLabelBackwardOut);
}

}  // namespace torch_tensord
