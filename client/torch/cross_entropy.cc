// F.cross_entropy with a class for each element as its target: one op of the server, and one for
// the gradient. PyTorch's composition of log_softmax and nll_loss keeps all log-probabilities for
// the backward pass, and makes two more tensors of their size there. Other targets, dtypes and
// modes run PyTorch's composition. The op keeps x, so x must not be changed in place before the
// backward pass; PyTorch's composition allows that.
#include <ATen/autocast_mode.h>
#include <ATen/ops/cross_entropy_loss_native.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include <optional>

#include "kernels.h"
#include "value_errors.h"

namespace torch_tensord {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr Origin kLoss{nullptr, "cross_entropy", "the target"};

struct Options {
  int64_t reduction;
  int64_t ignore_index;
  double label_smoothing;
};

at::ScalarType StatisticsDType(const at::Tensor& x) {
  return x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
}

bool MayFuse(const at::Tensor& x, const at::Tensor& target, const std::optional<at::Tensor>& weight,
             const Options& options) {
  if (!IsPlainTensor(x) || !IsPlainTensor(target) || InTransform()) return false;
  if (!at::isFloatingType(x.scalar_type()) || target.scalar_type() != at::kLong) return false;
  if (x.dim() == 0 || x.numel() == 0 || target.device() != x.device()) return false;
  if (!(options.label_smoothing >= 0 && options.label_smoothing <= 1)) return false;
  const int64_t axis = ClassAxis(x);
  c10::DimVector rows(x.sizes().begin(), x.sizes().end());
  rows.erase(rows.begin() + axis);
  if (!target.sizes().equals(rows)) return false;
  if (!IsGiven(weight)) return true;
  return IsPlainTensor(*weight) && weight->device() == x.device() && weight->dim() == 1 &&
         weight->size(0) == x.size(axis) && weight->scalar_type() == x.scalar_type() &&
         !(at::GradMode::is_enabled() && weight->requires_grad());
}

// Returns the loss as PyTorch composes it.
at::Tensor Composed(const at::Tensor& x, const at::Tensor& target,
                    const std::optional<at::Tensor>& weight, const Options& options) {
  return at::native::cross_entropy_loss_symint(x, target, weight, options.reduction,
                                               options.ignore_index, options.label_smoothing);
}

// Returns the gradient of x. If grad mode is enabled, autograd can differentiate it.
at::Tensor DifferentiableGradient(const at::Tensor& gradient, const at::Tensor& x,
                                  const at::Tensor& target, const std::optional<at::Tensor>& weight,
                                  const Options& options) {
  const bool create_graph = at::GradMode::is_enabled();
  const at::AutoGradMode enabled(true);
  const at::Tensor loss = Composed(x, target, weight, options).to(gradient.scalar_type());
  return torch::autograd::grad({loss}, {x}, {gradient}, /*retain_graph=*/true, create_graph)[0];
}

class CrossEntropy final : public torch::autograd::Function<CrossEntropy> {
 public:
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const at::Tensor& target,
                            const std::optional<at::Tensor>& weight, int64_t reduction,
                            int64_t ignore_index, double label_smoothing, bool keeps_float32) {
    const at::AutoDispatchBelowADInplaceOrView guard;
    const c10::DeviceIndex device = DeviceOf(x);
    const Value wide = Read(x), classes = Read(target);
    c10::SmallVector<In, 3> inputs = {wide, classes};
    Value factor;
    if (IsGiven(weight)) inputs.emplace_back(factor = Read(*weight));
    const std::vector<Value> made = PushAll("cross_entropy_loss", inputs,
                                            {{"axis", ClassAxis(x)},
                                             {"ignore_index", ignore_index},
                                             {"label_smoothing", label_smoothing},
                                             {"reduction", ReductionName(reduction)}});
    Named(kLoss, device, made[0]);
    const auto whole = [&](const Value& value, at::ScalarType dtype) {
      at::Tensor tensor = MakeContiguous(value->sizes(), dtype, device);
      Write(tensor, Cast(value, dtype));
      return tensor;
    };
    const at::ScalarType statistics = StatisticsDType(x);
    ctx->save_for_backward({x, target, IsGiven(weight) ? *weight : at::Tensor(),
                            whole(made[1], statistics), whole(made[2], statistics)});
    ctx->saved_data["reduction"] = reduction;
    ctx->saved_data["ignore_index"] = ignore_index;
    ctx->saved_data["label_smoothing"] = label_smoothing;
    return whole(made[0], keeps_float32 ? statistics : x.scalar_type());
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& gradients) {
    const variable_list saved = ctx->get_saved_variables();
    const at::Tensor &gradient = gradients[0], &x = saved[0], &target = saved[1];
    const auto weight = saved[2].defined() ? std::optional<at::Tensor>(saved[2]) : std::nullopt;
    const Options options = {ctx->saved_data["reduction"].toInt(),
                             ctx->saved_data["ignore_index"].toInt(),
                             ctx->saved_data["label_smoothing"].toDouble()};
    variable_list results(7);
    if (!gradient.defined()) return results;
    if (at::GradMode::is_enabled() || !IsPlainTensor(gradient) || InTransform()) {
      results[0] = DifferentiableGradient(gradient, x, target, weight, options);
      return results;
    }
    const at::AutoDispatchBelowADInplaceOrView guard;
    const Value g = Cast(Read(gradient), StatisticsDType(x)), wide = Read(x), lse = Read(saved[3]),
                classes = Read(target), total = Read(saved[4]);
    c10::SmallVector<In, 6> inputs = {g, wide, lse, classes, total};
    Value factor;
    if (weight.has_value()) inputs.emplace_back(factor = Read(*weight));
    const Value made = PushAll("cross_entropy_loss_backward", inputs,
                               {{"axis", ClassAxis(x)},
                                {"ignore_index", options.ignore_index},
                                {"label_smoothing", options.label_smoothing},
                                {"reduction", ReductionName(options.reduction)}})[0];
    results[0] = MakeContiguous(x.sizes(), x.scalar_type(), DeviceOf(x));
    Write(results[0], Named(kLoss, DeviceOf(x), made));
    return results;
  }
};

at::Tensor Loss(const at::Tensor& x, const at::Tensor& target,
                const std::optional<at::Tensor>& weight, int64_t reduction,
                c10::SymInt ignore_index, double label_smoothing) {
  const std::optional<int64_t> ignored = ignore_index.maybe_as_int();
  const Options options = {reduction, ignored.value_or(0), label_smoothing};
  if (!ignored.has_value() || !MayFuse(x, target, weight, options)) {
    return at::native::cross_entropy_loss_symint(x, target, weight, reduction,
                                                 std::move(ignore_index), label_smoothing);
  }
  const bool autocast = at::autocast::is_autocast_enabled(at::kPrivateUse1);
  return CrossEntropy::apply(x, target, weight, reduction, *ignored, label_smoothing, autocast);
}

TORCH_LIBRARY_IMPL(aten, AutogradPrivateUse1, m) { m.impl("cross_entropy_loss", Loss); }

}  // namespace
}  // namespace torch_tensord
