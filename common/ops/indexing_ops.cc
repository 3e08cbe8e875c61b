// Ops that read and write elements at indices, which are elements of integer tensors.
#include "absl/strings/str_cat.h"
#include "tensord/common/ops/op_inference.h"
#include "tensord/common/ops/op_registry.h"
#include "tensord/common/util/status_macros.h"

namespace tensord {
namespace {

absl::Status RequireIndices(const InferenceContext& ctx, int input) {
  const DType dtype = ctx.input(input).dtype;
  if (dtype == DType::kInt32 || dtype == DType::kInt64) return absl::OkStatus();
  return ctx.Error(absl::StrCat("input ", input, " has the indices, which must be int32 or int64, ",
                                "not ", DTypeName(dtype)));
}

// The arguments of index and index_put.
struct IndexArgs {
  int axis = 0;   // the first indexed axis of x
  int count = 0;  // of index tensors, and of axes
  Shape
      selected;  // x.shape[:axis] + the broadcast shape of the index tensors + the rest of x.shape
};

// Returns the shape to which the inputs [1, 1 + count) broadcast.
absl::StatusOr<Shape> BroadcastIndices(const InferenceContext& ctx, int count) {
  Shape shape;
  for (int i = 1; i <= count; ++i) {
    TENSORD_RETURN_IF_ERROR(RequireIndices(ctx, i));
    absl::StatusOr<Shape> wider = BroadcastShapes(shape, ctx.input(i).shape);
    if (!wider.ok()) return ctx.Error(absl::StrCat("index tensors: ", wider.status().message()));
    shape = *std::move(wider);
  }
  const absl::Status valid = shape.Validate();
  if (!valid.ok()) return ctx.Error(absl::StrCat("index tensors: ", valid.message()));
  return shape;
}

// Returns an error if there are indices into an axis without elements. No index is valid then.
absl::Status RequireElements(const InferenceContext& ctx, int axis, int64_t indices) {
  if (indices == 0 || ctx.input(0).shape.dim(axis) > 0) return absl::OkStatus();
  return ctx.Error(absl::StrCat("axis ", axis, " has size 0, so it has no element for any of the ",
                                indices, indices == 1 ? " index" : " indices"));
}

absl::StatusOr<IndexArgs> ReadIndexArgs(InferenceContext& ctx, int count) {
  const Shape& x = ctx.input(0).shape;
  if (x.rank() == 0) return ctx.Error("a scalar has no axis to index: reshape it to [1] first");
  IndexArgs args;
  args.count = count;
  TENSORD_ASSIGN_OR_RETURN(const int64_t axis, ResolveAxis(ctx, ctx.attrs().Int("axis"), x.rank()));
  args.axis = static_cast<int>(axis);
  if (count > x.rank() - args.axis) {
    return ctx.Error(absl::StrCat(count, " index tensors from axis ", axis, " on need ",
                                  axis + count, " dimensions, and input 0 has ", x.rank()));
  }
  TENSORD_ASSIGN_OR_RETURN(const Shape indices, BroadcastIndices(ctx, count));
  for (int d = 0; d < args.axis; ++d) args.selected.AppendDim(x.dim(d));
  for (const int64_t dim : indices.dims()) args.selected.AppendDim(dim);
  for (int d = args.axis + count; d < x.rank(); ++d) args.selected.AppendDim(x.dim(d));
  for (int d = args.axis; d < args.axis + count; ++d) {
    TENSORD_RETURN_IF_ERROR(RequireElements(ctx, d, indices.num_elements()));
  }
  ctx.SetAttr("axis", axis);
  return args;
}

absl::Status InferIndex(InferenceContext& ctx) {
  TENSORD_ASSIGN_OR_RETURN(IndexArgs args, ReadIndexArgs(ctx, ctx.num_inputs() - 1));
  ctx.AddOutput(ctx.input(0).dtype, std::move(args.selected));
  return absl::OkStatus();
}

}  // namespace

void AppendIndexingOps(std::vector<OpSchema>& ops) {
  const AttrDef first_axis =
      OptionalAttr("axis", AttrType::kInt, int64_t{0},
                   "the first indexed axis; a negative one counts from the end");
  ops.push_back({.name = "index",
                 .signature = "x, i1, …, ik -> x.shape[:axis] + (broadcast i) + x.shape[axis+k:]",
                 .doc = "The parts of x at the indices into k adjacent axes.",
                 .min_inputs = 2,
                 .max_inputs = 1 + kMaxRank,
                 .attrs = {first_axis},
                 .infer = InferIndex,
                 .cost = OpCost::kCopy,
                 .takes_complex = true,
                 .value_checked = true});
}

}  // namespace tensord
