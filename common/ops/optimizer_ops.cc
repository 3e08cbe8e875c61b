// Steps of optimizers.
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tensord/common/ops/op_inference.h"
#include "tensord/common/ops/op_registry.h"
#include "tensord/common/util/status_macros.h"

namespace tensord {
namespace {

// The number of inputs of adam_step that have the shape of p: p, gradient, m and v. With amsgrad,
// vmax is one more.
constexpr int kAdamTensors = 4;

absl::Status CheckDecay(const InferenceContext& ctx, absl::string_view name) {
  const double value = ctx.attrs().Float(name);
  if (value >= 0 && value < 1) return absl::OkStatus();
  return ctx.Error(absl::StrCat(name, " is ", value, " and must be from 0 to 1, and not 1"));
}

absl::Status CheckNotNegative(const InferenceContext& ctx, absl::string_view name) {
  const double value = ctx.attrs().Float(name);
  if (std::isfinite(value) && value >= 0) return absl::OkStatus();
  return ctx.Error(absl::StrCat(name, " is ", value, ": name a finite number that isn't negative"));
}

absl::Status InferAdamStep(InferenceContext& ctx) {
  const TensorSpec& p = ctx.input(0);
  const bool amsgrad = ctx.attrs().Bool("amsgrad");
  const int tensors = kAdamTensors + (amsgrad ? 1 : 0);
  TENSORD_RETURN_IF_ERROR(RequireFloating(ctx, p.dtype));
  for (const char* name : {"beta1", "beta2"}) TENSORD_RETURN_IF_ERROR(CheckDecay(ctx, name));
  for (const char* name : {"eps", "weight_decay"}) {
    TENSORD_RETURN_IF_ERROR(CheckNotNegative(ctx, name));
  }
  if (ctx.num_inputs() != tensors + 2) {
    return ctx.Error(amsgrad ? "with amsgrad, takes p, gradient, m, v, vmax, step and lr"
                             : "without amsgrad, takes p, gradient, m, v, step and lr");
  }
  for (int i = 1; i < tensors; ++i) {
    TENSORD_RETURN_IF_ERROR(RequireDType(ctx, i, p.dtype, "that of p"));
    TENSORD_RETURN_IF_ERROR(RequireShape(ctx, i, p.shape, "that of p"));
  }
  for (int i = tensors; i < tensors + 2; ++i) {
    const TensorSpec& number = ctx.input(i);
    if (number.shape.rank() != 0 || IsBool(number.dtype)) {
      return ctx.Error(
          absl::StrCat(i == tensors ? "step" : "lr", " must be a number, a tensor of shape []"));
    }
    ctx.ReadInputAs(i, DType::kFloat64);
  }
  for (int i = 0; i < tensors - 1; ++i) ctx.AddOutput(p.dtype, p.shape);
  return absl::OkStatus();
}

}  // namespace

void AppendOptimizerOps(std::vector<OpSchema>& ops) {
  ops.push_back(
      {.name = "adam_step",
       .signature = "p, gradient, m, v[, vmax] (…), step (), lr () -> p, m, v[, vmax] (…)",
       .doc = "A step of Adam or AdamW, with its number from 1 on; may overwrite donated inputs.",
       .min_inputs = kAdamTensors + 2,
       .max_inputs = kAdamTensors + 3,
       .attrs = {OptionalAttr("beta1", AttrType::kFloat, 0.9, "the decay of m"),
                 OptionalAttr("beta2", AttrType::kFloat, 0.999, "the decay of v"),
                 OptionalAttr("eps", AttrType::kFloat, 1e-8, "added to the denominator"),
                 OptionalAttr("weight_decay", AttrType::kFloat, 0.0,
                              "the factor of p; see decoupled"),
                 OptionalAttr("decoupled", AttrType::kBool, false,
                              "false: weight_decay p is added to the gradient; true: AdamW, lr "
                              "weight_decay p is subtracted from p"),
                 OptionalAttr("amsgrad", AttrType::kBool, false,
                              "divides by the root of vmax, the largest v so far, not of v"),
                 OptionalAttr("maximize", AttrType::kBool, false, "negates the gradient")},
       .infer = InferAdamStep,
       .cost = OpCost::kCopy,
       .input_names = {"p", "gradient", "m", "v", "vmax or step", "step or lr", "lr"},
       .in_place = {{0, 0}, {2, 1}, {3, 2}, {4, 3}}});
}

}  // namespace tensord
