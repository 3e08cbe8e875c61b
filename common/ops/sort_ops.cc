// Ops that order elements, or find them: sort, topk, searchsorted, nonzero.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "tensord/common/ops/op_inference.h"
#include "tensord/common/ops/op_registry.h"
#include "tensord/common/util/status_macros.h"

namespace tensord {
namespace {

// Brings "axis" into normal form and returns it.
absl::StatusOr<int> InferAxis(InferenceContext& ctx) {
  TENSORD_ASSIGN_OR_RETURN(const int64_t axis,
                           ResolveAxis(ctx, ctx.attrs().Int("axis"), ctx.input(0).shape.rank()));
  ctx.SetAttr("axis", axis);
  return static_cast<int>(axis);
}

void AddValuesAndIndices(InferenceContext& ctx, const Shape& shape) {
  ctx.AddOutput(ctx.input(0).dtype, shape);
  ctx.AddOutput(DType::kInt64, shape);
}

absl::Status InferSort(InferenceContext& ctx) {
  TENSORD_RETURN_IF_ERROR(InferAxis(ctx).status());
  AddValuesAndIndices(ctx, ctx.input(0).shape);
  return absl::OkStatus();
}

absl::Status InferTopK(InferenceContext& ctx) {
  TENSORD_RETURN_IF_ERROR(RequireNumber(ctx, ctx.input(0).dtype));
  TENSORD_ASSIGN_OR_RETURN(const int axis, InferAxis(ctx));
  Shape shape = ctx.input(0).shape;
  const int64_t extent = shape.rank() == 0 ? 1 : shape.dim(axis);
  const int64_t k = ctx.attrs().Int("k");
  if (k < 0 || k > extent) {
    return ctx.Error(absl::StrCat("k is ", k, " and must be from 0 to ", extent,
                                  ", the number of elements along axis ", axis));
  }
  if (shape.rank() > 0) {
    shape.set_dim(axis, k);
  } else if (k == 0) {
    return ctx.Error("k is 0, and a scalar has no axis that could become empty");
  }
  AddValuesAndIndices(ctx, shape);
  return absl::OkStatus();
}

// Returns whether both have the same dimensions, except the last.
bool LeadingDimensionsAgree(const Shape& a, const Shape& b) {
  return a.rank() == b.rank() && std::equal(a.dims().begin(), a.dims().end() - 1, b.dims().begin());
}

absl::Status InferSearchSorted(InferenceContext& ctx) {
  const Shape& sorted = ctx.input(0).shape;
  const Shape& x = ctx.input(1).shape;
  if (sorted.rank() == 0) {
    return ctx.Error("the sorted input is a scalar: reshape it to [1] first");
  }
  if (sorted.rank() > 1 && !LeadingDimensionsAgree(sorted, x)) {
    return ctx.Error(
        "the sorted input must have one dimension, or all dimensions of x except the last");
  }
  TENSORD_ASSIGN_OR_RETURN(const DType dtype, PromoteInputs(ctx));
  TENSORD_RETURN_IF_ERROR(RequireNumber(ctx, dtype));
  ctx.AddOutput(DType::kInt64, x);
  return absl::OkStatus();
}

absl::Status InferNonzero(InferenceContext& ctx) {
  const int64_t size = ctx.attrs().Int("size");
  if (size < 0 || size > kMaxElements) {
    return ctx.Error(absl::StrCat("size is ", size, " and must be from 0 to ", kMaxElements));
  }
  ctx.AddOutput(DType::kInt64, {ctx.input(0).shape.rank(), size});
  return absl::OkStatus();
}

AttrDef AxisAttr() {
  return OptionalAttr("axis", AttrType::kInt, int64_t{-1},
                      "the axis; a negative one counts from the end");
}

}  // namespace

void AppendSortOps(std::vector<OpSchema>& ops) {
  ops.push_back({"sort",
                 "(…) -> (…), (…)",
                 "The elements in order along an axis, and their indices (int64). Equal elements "
                 "keep their order; NaN is greater than all numbers.",
                 1,
                 1,
                 {AxisAttr(), OptionalAttr("descending", AttrType::kBool, false,
                                           "the greatest first, NaN before all numbers")},
                 InferSort,
                 OpCost::kSort});
  ops.push_back(
      {"topk",
       "(…,n,…) -> (…,k,…), (…,k,…)",
       "The k greatest elements along an axis, and their indices (int64). NaN is greater than all "
       "numbers; of equal elements, those with the lowest indices are taken.",
       1,
       1,
       {RequiredAttr("k", AttrType::kInt, "the number of elements, from 0 to n"), AxisAttr(),
        OptionalAttr("largest", AttrType::kBool, true, "false: the smallest elements"),
        OptionalAttr("sorted", AttrType::kBool, true,
                     "false: any order is accepted; the results are in order nevertheless")},
       InferTopK,
       OpCost::kSort});
  ops.push_back({"searchsorted",
                 "(…,n), (…,m) -> (…,m), or (n), (…) -> (…)",
                 "For each element of x, the index (int64) at which it can be inserted into the "
                 "sorted input; NaN is greater than all numbers.",
                 2,
                 2,
                 {OptionalAttr("right", AttrType::kBool, false,
                               "false: the index before equal elements; true: the one after them")},
                 InferSearchSorted,
                 OpCost::kCompute});
  ops.back().input_names = {"sorted", "x"};
  ops.push_back({"nonzero",
                 "(…) -> (rank,size)",
                 "The indices (int64) of the elements that aren't zero, in row-major order, one in "
                 "each column. If there are fewer than size, zeros follow.",
                 1,
                 1,
                 {RequiredAttr("size", AttrType::kInt,
                               "the number of columns; further elements are left out")},
                 InferNonzero,
                 OpCost::kCompute});
}

}  // namespace tensord
