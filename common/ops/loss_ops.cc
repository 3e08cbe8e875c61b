// Losses and their gradients.
#include "absl/strings/str_cat.h"
#include "tensord/common/ops/op_inference.h"
#include "tensord/common/ops/op_registry.h"
#include "tensord/common/util/status_macros.h"

namespace tensord {
namespace {

// Checks x, the target and the weight, which are the inputs `x_input`, `target` and `target` + 1.
// Brings the axis into normal form. Returns the shape of a result that has one element for each
// distribution.
absl::StatusOr<Shape> ReadClasses(InferenceContext& ctx, int x_input, int target) {
  const TensorSpec& x = ctx.input(x_input);
  TENSORD_RETURN_IF_ERROR(RequireFloating(ctx, x.dtype));
  if (x.shape.rank() == 0) return ctx.Error("a scalar has no classes: reshape it to [1] first");
  TENSORD_ASSIGN_OR_RETURN(const int64_t axis,
                           ResolveAxis(ctx, ctx.attrs().Int("axis"), x.shape.rank()));
  const double smoothing = ctx.attrs().Float("label_smoothing");
  if (!(smoothing >= 0 && smoothing <= 1)) {
    return ctx.Error(absl::StrCat("label_smoothing is ", smoothing, " and must be from 0 to 1"));
  }
  Shape rows;
  for (int d = 0; d < x.shape.rank(); ++d) {
    if (d != axis) rows.AppendDim(x.shape.dim(d));
  }
  const int64_t classes = x.shape.dim(static_cast<int>(axis));
  TENSORD_RETURN_IF_ERROR(RequireIndices(ctx, target, "the classes"));
  TENSORD_RETURN_IF_ERROR(
      RequireShape(ctx, target, rows, absl::StrCat("that of x without axis ", axis)));
  if (classes == 0 && rows.num_elements() > 0) {
    return ctx.Error(absl::StrCat("axis ", axis, " has size 0: there is no class"));
  }
  if (ctx.num_inputs() > target + 1) {
    TENSORD_RETURN_IF_ERROR(ReadParameter(ctx, target + 1, x.dtype, Shape({classes})));
  }
  ctx.SetAttr("axis", axis);
  return rows;
}

absl::Status InferCrossEntropy(InferenceContext& ctx) {
  TENSORD_ASSIGN_OR_RETURN(const Shape rows, ReadClasses(ctx, 0, 1));
  const DType dtype = StatisticsDType(ctx.input(0).dtype);
  for (int i = 0; i < 2; ++i) ctx.AddOutput(dtype, rows);
  return absl::OkStatus();
}

absl::Status InferCrossEntropyBackward(InferenceContext& ctx) {
  TENSORD_ASSIGN_OR_RETURN(const Shape rows, ReadClasses(ctx, 1, 3));
  const TensorSpec& x = ctx.input(1);
  const DType dtype = StatisticsDType(x.dtype);
  TENSORD_RETURN_IF_ERROR(ReadParameter(ctx, 0, x.dtype, rows));
  TENSORD_RETURN_IF_ERROR(RequireDType(ctx, 2, dtype, "the dtype of the forward op's result"));
  TENSORD_RETURN_IF_ERROR(RequireShape(ctx, 2, rows, "that of the target"));
  ctx.AddOutput(x.dtype, x.shape);
  return absl::OkStatus();
}

std::vector<AttrDef> LossAttrs() {
  return {OptionalAttr("axis", AttrType::kInt, int64_t{-1}, "the axis of the classes"),
          OptionalAttr("ignore_index", AttrType::kInt, int64_t{-100},
                       "a target of this value gives the loss 0 and no gradient"),
          OptionalAttr("label_smoothing", AttrType::kFloat, 0.0,
                       "the share of a target, from 0 to 1, that all classes get equally")};
}

}  // namespace

void AppendLossOps(std::vector<OpSchema>& ops) {
  ops.push_back({.name = "cross_entropy",
                 .signature = "x (…,C), target (…), weight (C) -> loss (…), lse (…)",
                 .doc = "weight[target] * (lse - x[target]) for each distribution over C classes, "
                        "where lse is log(sum(exp(x))).",
                 .min_inputs = 2,
                 .max_inputs = 3,
                 .attrs = LossAttrs(),
                 .infer = InferCrossEntropy,
                 .cost = OpCost::kCopy,
                 .input_names = {"x", "target", "weight"},
                 .value_checked = true});
  ops.push_back({.name = "cross_entropy_backward",
                 .signature = "gradient (…), x (…,C), lse (…), target (…), weight (C) -> gx (…,C)",
                 .doc = "The gradient of cross_entropy, from the gradient of its loss and its lse.",
                 .min_inputs = 4,
                 .max_inputs = 5,
                 .attrs = LossAttrs(),
                 .infer = InferCrossEntropyBackward,
                 .cost = OpCost::kCopy,
                 .input_names = {"gradient", "x", "lse", "target", "weight"},
                 .value_checked = true});
}

}  // namespace tensord
