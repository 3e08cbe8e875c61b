// Ops that reduce over axes, and softmax.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "tensord/common/ops/op_inference.h"
#include "tensord/common/ops/op_registry.h"
#include "tensord/common/util/status_macros.h"

namespace tensord {
namespace {

// Brings "axes" into normal form, and returns the shape of the result.
absl::StatusOr<Shape> ReduceShape(InferenceContext& ctx) {
  const Shape& in = ctx.input(0).shape;
  TENSORD_ASSIGN_OR_RETURN(std::vector<int64_t> axes,
                           ResolveAxes(ctx, ctx.attrs().Ints("axes"), in.rank()));
  if (in.rank() == 0) axes.clear();  // a scalar accepts axis 0 and -1, as in PyTorch
  if (axes.empty()) {
    axes.resize(in.rank());
    std::iota(axes.begin(), axes.end(), 0);
  }
  std::sort(axes.begin(), axes.end());
  const bool keepdims = ctx.attrs().Bool("keepdims");
  Shape out;
  for (int axis = 0; axis < in.rank(); ++axis) {
    if (!std::binary_search(axes.begin(), axes.end(), axis)) {
      out.AppendDim(in.dim(axis));
    } else if (keepdims) {
      out.AppendDim(1);
    }
  }
  ctx.SetAttr("axes", std::move(axes));
  return out;
}

// Returns an error if an element of the result would be a reduction of no elements.
absl::Status RequireExtent(const InferenceContext& ctx, const Shape& out, absl::string_view what) {
  if (ctx.input(0).num_elements() > 0 || out.num_elements() == 0) return absl::OkStatus();
  return ctx.Error(absl::StrCat("there is no ", what, " of no elements (axes ",
                                IntsForMessage(ctx.attrs().Ints("axes")),
                                " have an extent of 0): reduce over axes that aren't empty"));
}

absl::Status InferSum(InferenceContext& ctx) {
  TENSORD_ASSIGN_OR_RETURN(Shape shape, ReduceShape(ctx));
  const DType dtype = IsFloating(ctx.input(0).dtype) ? ctx.input(0).dtype : DType::kInt64;
  ctx.AddOutput(dtype, std::move(shape));
  return absl::OkStatus();
}

absl::Status InferMean(InferenceContext& ctx) {
  TENSORD_RETURN_IF_ERROR(RequireFloating(ctx, ctx.input(0).dtype));
  TENSORD_ASSIGN_OR_RETURN(Shape shape, ReduceShape(ctx));
  ctx.AddOutput(ctx.input(0).dtype, std::move(shape));
  return absl::OkStatus();
}

absl::Status InferNorm(InferenceContext& ctx) {
  TENSORD_RETURN_IF_ERROR(RequireFloating(ctx, ctx.input(0).dtype));
  const double ord = ctx.attrs().Float("ord");
  if (std::isnan(ord)) return ctx.Error("ord is NaN: name a number, inf or -inf");
  TENSORD_ASSIGN_OR_RETURN(Shape shape, ReduceShape(ctx));
  if (ord < 0 || std::isinf(ord)) {  // an extremum: it needs at least one element
    TENSORD_RETURN_IF_ERROR(RequireExtent(ctx, shape, absl::StrCat("norm of order ", ord)));
  }
  ctx.AddOutput(ctx.input(0).dtype, std::move(shape));
  return absl::OkStatus();
}

absl::Status InferExtremum(InferenceContext& ctx) {
  TENSORD_ASSIGN_OR_RETURN(Shape shape, ReduceShape(ctx));
  TENSORD_RETURN_IF_ERROR(RequireExtent(ctx, shape, "extremum"));
  ctx.AddOutput(ctx.input(0).dtype, std::move(shape));
  return absl::OkStatus();
}

absl::Status InferArgExtremum(InferenceContext& ctx) {
  TENSORD_ASSIGN_OR_RETURN(Shape shape, ReduceShape(ctx));
  TENSORD_RETURN_IF_ERROR(RequireExtent(ctx, shape, "extremum"));
  ctx.AddOutput(DType::kInt64, std::move(shape));
  return absl::OkStatus();
}

absl::Status InferSoftmax(InferenceContext& ctx) {
  TENSORD_RETURN_IF_ERROR(RequireFloating(ctx, ctx.input(0).dtype));
  TENSORD_ASSIGN_OR_RETURN(const int64_t axis,
                           ResolveAxis(ctx, ctx.attrs().Int("axis"), ctx.input(0).shape.rank()));
  ctx.SetAttr("axis", axis);
  ctx.AddOutput(ctx.input(0).dtype, ctx.input(0).shape);
  return absl::OkStatus();
}

OpSchema Reduction(const char* name, const char* doc, absl::Status (*infer)(InferenceContext&),
                   OpCost cost) {
  return {name,
          "(…) -> (…) without the axes",
          doc,
          1,
          1,
          {OptionalAttr("axes", AttrType::kInts, std::vector<int64_t>{},
                        "the axes to reduce; negative axes count from the end; empty: all axes"),
           OptionalAttr("keepdims", AttrType::kBool, false, "keep reduced axes with size 1")},
          infer,
          cost};
}

OpSchema Softmax(const char* name, const char* doc) {
  return {name,
          "(…) -> (…)",
          doc,
          1,
          1,
          {OptionalAttr("axis", AttrType::kInt, int64_t{-1}, "the axis that sums to one")},
          InferSoftmax,
          OpCost::kCopy};
}

}  // namespace

void AppendReductionOps(std::vector<OpSchema>& ops) {
  ops.push_back(Reduction("sum", "The sum; int64 for integers and bool, and wraps.", InferSum,
                          OpCost::kCopy));
  ops.push_back(Reduction("mean", "The mean; NaN for no elements.", InferMean, OpCost::kCopy));
  ops.push_back(
      Reduction("max", "The largest element; NaN if any is NaN.", InferExtremum, OpCost::kCopy));
  ops.push_back(
      Reduction("min", "The smallest element; NaN if any is NaN.", InferExtremum, OpCost::kCopy));
  ops.push_back(Reduction(
      "argmax", "Index of the first largest element in the flattened axes; NaN counts as largest.",
      InferArgExtremum, OpCost::kCompute));
  ops.push_back(Reduction(
      "argmin",
      "Index of the first smallest element in the flattened axes; NaN counts as smallest.",
      InferArgExtremum, OpCost::kCompute));
  OpSchema norm = Reduction("norm", "The vector norm, like torch.linalg.vector_norm.", InferNorm,
                            OpCost::kCompute);
  norm.attrs.push_back(OptionalAttr(
      "ord", AttrType::kFloat, 2.0,
      "inf: largest |x|; -inf: smallest |x|; 0: number of non-zeros; else (sum |x|^ord)^(1/ord)"));
  ops.push_back(std::move(norm));
  ops.push_back(Softmax("softmax", "exp(x) divided by its sum along the axis."));
  ops.push_back(Softmax("log_softmax", "The logarithm of softmax, computed without underflow."));
}

}  // namespace tensord
