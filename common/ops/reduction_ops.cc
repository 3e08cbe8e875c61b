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

// Returns "axes" in normal form.
absl::StatusOr<Dims> ReducedAxes(const InferenceContext& ctx) {
  const Shape& in = ctx.input(0).shape;
  TENSORD_ASSIGN_OR_RETURN(Dims axes, ResolveAxes(ctx, ctx.attrs().Ints("axes"), in.rank()));
  if (in.rank() == 0) axes.clear();  // a scalar accepts axis 0 and -1, as in PyTorch
  if (axes.empty()) {
    axes.resize(in.rank());
    std::iota(axes.begin(), axes.end(), 0);
  }
  std::sort(axes.begin(), axes.end());
  return axes;
}

// Brings "axes" into normal form, and returns the shape of the result.
absl::StatusOr<Shape> ReduceShape(InferenceContext& ctx) {
  const Shape& in = ctx.input(0).shape;
  TENSORD_ASSIGN_OR_RETURN(const Dims axes, ReducedAxes(ctx));
  const bool keepdims = ctx.attrs().Bool("keepdims");
  Shape out;
  for (int axis = 0; axis < in.rank(); ++axis) {
    if (!std::binary_search(axes.begin(), axes.end(), axis)) {
      out.AppendDim(in.dim(axis));
    } else if (keepdims) {
      out.AppendDim(1);
    }
  }
  ctx.SetInts("axes", axes);
  return out;
}

// Returns an error if an element of the result would be a reduction of no elements.
absl::Status RequireExtent(const InferenceContext& ctx, const Shape& out, absl::string_view what) {
  if (ctx.input(0).num_elements() > 0 || out.num_elements() == 0) return absl::OkStatus();
  TENSORD_ASSIGN_OR_RETURN(const Dims axes, ReducedAxes(ctx));
  return ctx.Error(absl::StrCat("there is no ", what, " of no elements (axes ",
                                IntsForMessage(axes),
                                " have an extent of 0): reduce over axes that aren't empty"));
}

// Infers sum and prod.
absl::Status InferAccumulation(InferenceContext& ctx) {
  TENSORD_ASSIGN_OR_RETURN(Shape shape, ReduceShape(ctx));
  const DType in = ctx.input(0).dtype;
  DType dtype = ctx.attrs().Type("dtype");
  if (dtype == DType::kUnspecified) dtype = IsFloating(in) ? in : DType::kInt64;
  // An integer result is computed modulo its range, so it doesn't depend on a cast of the elements
  // to another integer dtype.
  if (IsFloating(in) || !IsInteger(dtype)) ctx.ReadInputAs(0, dtype);
  ctx.SetAttr("dtype", dtype);
  ctx.AddOutput(dtype, std::move(shape));
  return absl::OkStatus();
}

absl::Status InferCountNonzero(InferenceContext& ctx) {
  TENSORD_ASSIGN_OR_RETURN(Shape shape, ReduceShape(ctx));
  ctx.AddOutput(DType::kInt64, std::move(shape));
  return absl::OkStatus();
}

absl::Status InferMean(InferenceContext& ctx) {
  TENSORD_RETURN_IF_ERROR(RequireFloating(ctx, ctx.input(0).dtype));
  TENSORD_ASSIGN_OR_RETURN(Shape shape, ReduceShape(ctx));
  ctx.AddOutput(ctx.input(0).dtype, std::move(shape));
  return absl::OkStatus();
}

absl::Status InferVarMean(InferenceContext& ctx) {
  TENSORD_RETURN_IF_ERROR(RequireFloating(ctx, ctx.input(0).dtype));
  const double correction = ctx.attrs().Float("correction");
  if (!std::isfinite(correction)) {
    return ctx.Error(absl::StrCat("correction is ", correction, ": name a finite number"));
  }
  TENSORD_ASSIGN_OR_RETURN(const Shape shape, ReduceShape(ctx));
  for (int i = 0; i < 2; ++i) ctx.AddOutput(ctx.input(0).dtype, shape);
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
  return {name, "(…) -> (…) without the axes", doc, 1, 1, ReductionAttrs(), infer, cost};
}

OpSchema Accumulation(const char* name, const char* doc) {
  OpSchema op = Reduction(name, doc, InferAccumulation, OpCost::kCopy);
  op.attrs.push_back(
      OptionalAttr("dtype", AttrType::kDType, DType::kUnspecified,
                   "dtype to which the input is cast first, and of the result; default: the "
                   "input's, and int64 for integers and bool"));
  return op;
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
  ops.push_back(Accumulation("sum", "The sum; integers wrap. 0 for no elements."));
  ops.push_back(Accumulation("prod", "The product; integers wrap. 1 for no elements."));
  ops.push_back(Reduction("count_nonzero",
                          "The number of elements that aren't zero, as int64; NaN isn't zero.",
                          InferCountNonzero, OpCost::kCopy));
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
  OpSchema var_mean = Reduction(
      "var_mean", "The variance, the squared deviations divided by n - correction, and the mean.",
      InferVarMean, OpCost::kCompute);
  var_mean.signature = "(…) -> (…), (…) without the axes";
  var_mean.attrs.push_back(CorrectionAttr());
  ops.push_back(std::move(var_mean));
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
