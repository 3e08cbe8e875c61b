// Ops that read and write elements at indices, which are elements of integer tensors: index,
// gather, index_put, scatter. strided_ops.cc has the ops whose positions are attributes.
#include "absl/strings/str_cat.h"
#include "tensord/common/ops/op_inference.h"
#include "tensord/common/ops/op_registry.h"
#include "tensord/common/util/status_macros.h"

namespace tensord {
namespace {

// The arguments of index and index_put.
struct IndexArgs {
  int axis = 0;         // the first indexed axis of x
  int count = 0;        // of index tensors, and of axes
  int64_t indices = 0;  // of each index tensor, after they have been broadcast
  // x.shape[:axis] + the broadcast shape of the index tensors + the rest of x.shape
  Shape selected;
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
  args.indices = indices.num_elements();
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

// Returns an error if the dtype of an input isn't that of input 0.
absl::Status RequireDTypeOfFirst(const InferenceContext& ctx, int input) {
  const DType wanted = ctx.input(0).dtype, given = ctx.input(input).dtype;
  if (given == wanted) return absl::OkStatus();
  return ctx.Error(absl::StrCat("input ", input, " must have the dtype of input 0, ",
                                DTypeName(wanted), ", and not ", DTypeName(given),
                                ": cast it first"));
}

// The result is input 0 with other values at some places. Without indices, it is an alias.
absl::Status AddUpdatedOutput(InferenceContext& ctx, int64_t indices) {
  if (indices == 0) ctx.SetAlias();
  ctx.AddOutput(ctx.input(0).dtype, ctx.input(0).shape);
  return absl::OkStatus();
}

// Complex values can replace elements, but there is no complex arithmetic and no complex order.
absl::Status CheckReduceOfComplex(const InferenceContext& ctx) {
  if (!IsComplex(ctx.input(0).dtype) || ctx.attrs().String("reduce") == "none") {
    return absl::OkStatus();
  }
  return ctx.Error("of complex elements takes only reduce = \"none\"");
}

absl::Status InferIndexPut(InferenceContext& ctx) {
  const int last = ctx.num_inputs() - 1;
  TENSORD_RETURN_IF_ERROR(RequireOneOf(ctx, "reduce", {"none", "add"}));
  TENSORD_RETURN_IF_ERROR(CheckReduceOfComplex(ctx));
  TENSORD_ASSIGN_OR_RETURN(const IndexArgs args, ReadIndexArgs(ctx, last - 1));
  const absl::Status valid = args.selected.Validate();
  if (!valid.ok())
    return ctx.Error(absl::StrCat("the selected part is too large: ", valid.message()));
  TENSORD_RETURN_IF_ERROR(RequireDTypeOfFirst(ctx, last));
  const Shape& values = ctx.input(last).shape;
  if (values.rank() > 0 && values != args.selected) {
    return ctx.Error(absl::StrCat("the values have the shape ", values.ToString(),
                                  ", and must have that of the selected part, ",
                                  args.selected.ToString(), ", or be a scalar"));
  }
  return AddUpdatedOutput(ctx, args.indices);
}

// Brings the axis of gather or scatter into normal form, and checks that the indices, input 1, fit
// input 0.
absl::Status ReadAxisAndIndices(InferenceContext& ctx) {
  const Shape& x = ctx.input(0).shape;
  const Shape& indices = ctx.input(1).shape;
  TENSORD_ASSIGN_OR_RETURN(const int64_t axis, ResolveAxis(ctx, ctx.attrs().Int("axis"), x.rank()));
  TENSORD_RETURN_IF_ERROR(RequireIndices(ctx, 1));
  if (indices.rank() != x.rank()) {
    return ctx.Error(absl::StrCat("inputs 0 and 1 have ", x.rank(), " and ", indices.rank(),
                                  " dimensions, and need the same number"));
  }
  for (int d = 0; d < x.rank(); ++d) {
    if (d == axis || indices.dim(d) <= x.dim(d)) continue;
    return ctx.Error(absl::StrCat("dimension ", d, " of the indices is ", indices.dim(d),
                                  ", and must not exceed that of input 0, ", x.dim(d),
                                  ": only axis ", axis, " may be longer"));
  }
  if (x.rank() > 0) {
    TENSORD_RETURN_IF_ERROR(RequireElements(ctx, static_cast<int>(axis), indices.num_elements()));
  }
  ctx.SetAttr("axis", axis);
  return absl::OkStatus();
}

absl::Status InferGather(InferenceContext& ctx) {
  TENSORD_RETURN_IF_ERROR(ReadAxisAndIndices(ctx));
  ctx.AddOutput(ctx.input(0).dtype, ctx.input(1).shape);
  return absl::OkStatus();
}

absl::Status InferScatter(InferenceContext& ctx) {
  TENSORD_RETURN_IF_ERROR(RequireOneOf(ctx, "reduce", {"none", "add", "mul", "max", "min"}));
  TENSORD_RETURN_IF_ERROR(CheckReduceOfComplex(ctx));
  TENSORD_RETURN_IF_ERROR(ReadAxisAndIndices(ctx));
  TENSORD_RETURN_IF_ERROR(RequireDTypeOfFirst(ctx, 2));
  const Shape& indices = ctx.input(1).shape;
  const Shape& values = ctx.input(2).shape;
  bool fits = values.rank() == 0 || values.rank() == indices.rank();
  for (int d = 0; fits && d < values.rank(); ++d) fits = values.dim(d) >= indices.dim(d);
  if (!fits) {
    return ctx.Error(absl::StrCat("the values have the shape ", values.ToString(),
                                  ", and must have at least that of the indices, ",
                                  indices.ToString(), ", or be a scalar"));
  }
  return AddUpdatedOutput(ctx, indices.num_elements());
}

}  // namespace

void AppendIndexingOps(std::vector<OpSchema>& ops) {
  const AttrDef first_axis =
      OptionalAttr("axis", AttrType::kInt, int64_t{0},
                   "the first indexed axis; a negative one counts from the end");
  const AttrDef axis = OptionalAttr("axis", AttrType::kInt, int64_t{0},
                                    "the indexed axis; a negative one counts from the end");
  const AttrDef from_end =
      OptionalAttr("from_end", AttrType::kBool, true,
                   "negative indices count from the end; otherwise they are out of range");
  ops.push_back({.name = "index",
                 .signature = "x, i1, …, ik -> x.shape[:axis] + (broadcast i) + x.shape[axis+k:]",
                 .doc = "The parts of x at the indices into k adjacent axes.",
                 .min_inputs = 2,
                 .max_inputs = 1 + kMaxRank,
                 .attrs = {first_axis, from_end},
                 .infer = InferIndex,
                 .cost = OpCost::kSelect,
                 .takes_complex = true,
                 .value_checked = true});
  ops.push_back({.name = "gather",
                 .signature = "x, i -> i.shape",
                 .doc = "For each index, the element of x with this index along the axis.",
                 .min_inputs = 2,
                 .max_inputs = 2,
                 .attrs = {axis, from_end},
                 .infer = InferGather,
                 .cost = OpCost::kSelect,
                 .takes_complex = true,
                 .input_names = {"x", "indices"},
                 .value_checked = true});
  ops.push_back(
      {.name = "index_put",
       .signature = "x, i1, …, ik, values -> x.shape",
       .doc = "x with values at the indices into k adjacent axes; may overwrite a donated x.",
       .min_inputs = 3,
       .max_inputs = 2 + kMaxRank,
       .attrs = {first_axis,
                 OptionalAttr("reduce", AttrType::kString, std::string("none"),
                              "none: the last value for an element replaces it; add: the "
                              "values are added to it in order"),
                 from_end},
       .infer = InferIndexPut,
       .cost = OpCost::kCopy,
       .takes_complex = true,
       .value_checked = true,
       .updates_input = true});
  ops.push_back({.name = "scatter",
                 .signature = "x, i, values -> x.shape",
                 .doc =
                     "x with the value for each index at this index along the axis; may overwrite "
                     "a donated x.",
                 .min_inputs = 3,
                 .max_inputs = 3,
                 .attrs = {axis,
                           OptionalAttr("reduce", AttrType::kString, std::string("none"),
                                        "none: the last value for an element replaces it; add, "
                                        "mul, max, min: combines it with the values in order"),
                           from_end},
                 .infer = InferScatter,
                 .cost = OpCost::kCopy,
                 .takes_complex = true,
                 .input_names = {"x", "indices", "values"},
                 .value_checked = true,
                 .updates_input = true});
}

}  // namespace tensord
