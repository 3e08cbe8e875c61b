// Ops that rearrange elements: reshape, permute, slice, concat, broadcast_to.
#include <algorithm>
#include <numeric>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tensord/common/ops/op_inference.h"
#include "tensord/common/ops/op_registry.h"
#include "tensord/common/util/status_macros.h"

namespace tensord {
namespace {

constexpr int kMaxConcatInputs = 1024;

Dims Iota(int count) {
  Dims values(count);
  std::iota(values.begin(), values.end(), 0);
  return values;
}

// Replaces the -1 by the size that makes the element counts equal. `known` is the product of the
// other dimensions.
absl::Status ResolveFreeDimension(const InferenceContext& ctx, int64_t known, int free_axis,
                                  Shape& shape) {
  const int64_t elements = ctx.input(0).num_elements();
  if (known == 0) {
    return ctx.Error(absl::StrCat("the -1 in shape ", IntsForMessage(ctx.attrs().Ints("shape")),
                                  " is ambiguous, because another dimension is 0: give the size"));
  }
  if (elements % known != 0) {
    return ctx.Error(absl::StrCat("shape ", IntsForMessage(ctx.attrs().Ints("shape")),
                                  " doesn't divide ", elements,
                                  " elements: the product of the other dimensions is ", known));
  }
  shape.set_dim(free_axis, elements / known);
  return absl::OkStatus();
}

absl::Status InferReshape(InferenceContext& ctx) {
  Shape shape(absl::MakeConstSpan(ctx.attrs().Ints("shape")));
  int free_axis = -1;
  for (int axis = 0; axis < shape.rank(); ++axis) {
    if (shape.dim(axis) != -1) continue;
    if (free_axis >= 0) {
      return ctx.Error(absl::StrCat("shape ", shape.ToString(), " has more than one -1"));
    }
    free_axis = axis;
  }
  if (free_axis >= 0) shape.set_dim(free_axis, 1);
  const absl::Status valid = shape.Validate();
  if (!valid.ok()) return ctx.Error(valid.message());
  if (free_axis >= 0) {
    TENSORD_RETURN_IF_ERROR(ResolveFreeDimension(ctx, shape.num_elements(), free_axis, shape));
  } else if (shape.num_elements() != ctx.input(0).num_elements()) {
    return ctx.Error(absl::StrCat("shape ", shape.ToString(), " has ", shape.num_elements(),
                                  " elements and the input has ", ctx.input(0).num_elements()));
  }
  ctx.SetInts("shape", shape.dims());
  ctx.SetAlias();
  ctx.AddOutput(ctx.input(0).dtype, std::move(shape));
  return absl::OkStatus();
}

// If the axes of a size other than 1 keep their order, the elements keep theirs.
bool PermutationMovesElements(const Shape& in, absl::Span<const int64_t> axes) {
  if (in.num_elements() == 0) return false;
  int64_t last = -1;
  for (int64_t axis : axes) {
    if (in.dim(static_cast<int>(axis)) == 1) continue;
    if (axis < last) return true;
    last = axis;
  }
  return false;
}

absl::Status InferPermute(InferenceContext& ctx) {
  const Shape& in = ctx.input(0).shape;
  const std::vector<int64_t>& given = ctx.attrs().Ints("axes");
  if (given.size() != static_cast<size_t>(in.rank())) {
    return ctx.Error(absl::StrCat("axes ", IntsForMessage(given), " must name each of the ",
                                  in.rank(), " dimensions once"));
  }
  TENSORD_ASSIGN_OR_RETURN(const Dims axes, ResolveAxes(ctx, given, in.rank()));
  Shape out;
  for (int64_t axis : axes) out.AppendDim(in.dim(static_cast<int>(axis)));
  if (!PermutationMovesElements(in, axes)) ctx.SetAlias();
  ctx.SetInts("axes", axes);
  ctx.AddOutput(ctx.input(0).dtype, std::move(out));
  return absl::OkStatus();
}

// The elements that a slice selects along an axis.
struct AxisRange {
  int64_t start, stop, step, count;
};

// Resolves a slice by Python's rules: a negative index counts from the end, and the result is
// clamped to the dimension, with a negative step to [-1, dim - 1]. Returns the range in normal
// form.
AxisRange ResolveRange(int64_t start, int64_t stop, int64_t step, int64_t dim) {
  const auto resolve = [&](int64_t index) {
    return std::clamp<int64_t>(index < 0 ? index + dim : index, step < 0 ? -1 : 0,
                               step < 0 ? dim - 1 : dim);
  };
  start = resolve(start);
  stop = resolve(stop);
  if (step > 0) {
    stop = std::max(start, stop);
    const int64_t span = stop - start;
    return {start, stop, step, step == 1 || span == 0 ? span : (span - 1) / step + 1};
  }
  if (stop >= start) return {0, 0, -1, 0};
  step = std::max(step, -dim);  // a longer step selects the same element
  const int64_t count = (start - stop - 1) / -step + 1;
  if (count == 1) return {start, start + 1, 1, 1};
  return {start, stop == -1 ? -dim - 1 : stop, step, count};
}

using AxisRanges = absl::InlinedVector<AxisRange, kInlineRank>;

// Reads the attributes of slice, and returns the range along each axis of the input.
absl::StatusOr<AxisRanges> ReadRanges(const InferenceContext& ctx) {
  const Shape& in = ctx.input(0).shape;
  const absl::Span<const int64_t> starts = ctx.attrs().Ints("starts");
  const absl::Span<const int64_t> stops = ctx.attrs().Ints("stops");
  const absl::Span<const int64_t> axes = ctx.attrs().Ints("axes");
  const absl::Span<const int64_t> steps = ctx.attrs().Ints("steps");
  const auto has_count = [&](absl::string_view name, size_t size) {
    if (size == starts.size()) return absl::OkStatus();
    return ctx.Error(absl::StrCat(name, " has ", size, " entries and starts has ", starts.size(),
                                  ": both need the same number"));
  };
  TENSORD_RETURN_IF_ERROR(has_count("stops", stops.size()));
  if (!axes.empty()) TENSORD_RETURN_IF_ERROR(has_count("axes", axes.size()));
  if (!steps.empty()) TENSORD_RETURN_IF_ERROR(has_count("steps", steps.size()));
  if (starts.size() > static_cast<size_t>(in.rank())) {
    return ctx.Error(
        absl::StrCat("starts has ", starts.size(), " entries for ", in.rank(), " dimensions"));
  }
  TENSORD_ASSIGN_OR_RETURN(const Dims resolved, ResolveAxes(ctx, axes, in.rank()));
  AxisRanges ranges;
  for (int64_t dim : in.dims()) ranges.push_back({0, dim, 1, dim});
  for (size_t i = 0; i < starts.size(); ++i) {
    const int axis = static_cast<int>(axes.empty() ? i : resolved[i]);
    const int64_t step = steps.empty() ? 1 : steps[i];
    if (step == 0) return ctx.Error(absl::StrCat("step of axis ", axis, " must not be 0"));
    ranges[axis] = ResolveRange(starts[i], stops[i], step, in.dim(axis));
  }
  return ranges;
}

// Returns where the slice begins in the input, in elements, if it is one range of the input's
// elements; otherwise nullopt.
std::optional<int64_t> RangeOffset(const Shape& in, const Shape& out, const AxisRanges& ranges) {
  for (const AxisRange& range : ranges) {
    if (range.count > 1 && range.step != 1) return std::nullopt;
  }
  if (out == in) return 0;
  if (out.num_elements() == 0) return std::nullopt;
  int axis = 0;
  while (axis < out.rank() && out.dim(axis) == 1) ++axis;
  for (int inner = axis + 1; inner < out.rank(); ++inner) {
    if (out.dim(inner) != in.dim(inner)) return std::nullopt;
  }
  int64_t offset = 0;
  for (int i = 0; i < in.rank(); ++i) offset = offset * in.dim(i) + ranges[i].start;
  return offset;
}

absl::Status InferSlice(InferenceContext& ctx) {
  TENSORD_ASSIGN_OR_RETURN(const AxisRanges ranges, ReadRanges(ctx));
  Shape out;
  for (const AxisRange& range : ranges) out.AppendDim(range.count);
  if (ctx.wants_plan()) {
    const std::optional<int64_t> offset = RangeOffset(ctx.input(0).shape, out, ranges);
    if (offset.has_value()) {
      const int64_t element_bytes = SizeOf(ctx.input(0).dtype);
      SetAliasIfWorthwhile(ctx, *offset * element_bytes, out.num_elements() * element_bytes);
    }
    Dims starts, stops, steps;
    for (const AxisRange& range : ranges) {
      starts.push_back(range.start);
      stops.push_back(range.stop);
      steps.push_back(range.step);
    }
    ctx.SetInts("starts", starts);
    ctx.SetInts("stops", stops);
    ctx.SetInts("steps", steps);
    ctx.SetInts("axes", Iota(out.rank()));
  }
  ctx.AddOutput(ctx.input(0).dtype, std::move(out));
  return absl::OkStatus();
}

bool DiffersOnlyAt(int64_t axis, const Shape& a, const Shape& b) {
  for (int d = 0; d < a.rank(); ++d) {
    if (d != axis && a.dim(d) != b.dim(d)) return false;
  }
  return true;
}

// Returns, for a message, at which axes inputs of the same rank fit together.
std::string FittingAxes(const InferenceContext& ctx) {
  std::vector<int64_t> fitting;
  for (int axis = 0; axis < ctx.input(0).shape.rank(); ++axis) {
    bool fits = true;
    for (int i = 1; i < ctx.num_inputs() && fits; ++i) {
      fits = ctx.input(i).shape.rank() == ctx.input(0).shape.rank() &&
             DiffersOnlyAt(axis, ctx.input(0).shape, ctx.input(i).shape);
    }
    if (fits) fitting.push_back(axis);
  }
  return fitting.empty() ? "there is no axis at which the inputs fit"
                         : absl::StrCat("the inputs fit at axis ", absl::StrJoin(fitting, " or "));
}

absl::Status CheckConcatInput(const InferenceContext& ctx, int i, int64_t axis) {
  const Shape& first = ctx.input(0).shape;
  const Shape& other = ctx.input(i).shape;
  if (other.rank() != first.rank()) {
    return ctx.Error(absl::StrCat("inputs 0 and ", i, " have ", first.rank(), " and ", other.rank(),
                                  " dimensions: ", first.ToString(), " and ", other.ToString(),
                                  "; reshape one of them"));
  }
  for (int d = 0; d < first.rank(); ++d) {
    if (d == axis || first.dim(d) == other.dim(d)) continue;
    return ctx.Error(absl::StrCat("inputs 0 and ", i, " differ at dimension ", d, ": ",
                                  first.ToString(), " and ", other.ToString(),
                                  " may differ only at axis ", axis, "; ", FittingAxes(ctx)));
  }
  return absl::OkStatus();
}

absl::Status InferConcat(InferenceContext& ctx) {
  Shape out = ctx.input(0).shape;
  if (out.rank() == 0)
    return ctx.Error("scalars have no axis to join at: reshape them to [1] first");
  TENSORD_ASSIGN_OR_RETURN(const int64_t axis,
                           ResolveAxis(ctx, ctx.attrs().Int("axis"), out.rank()));
  int64_t joined = 0;  // at most kMaxConcatInputs * kMaxElements, which is 2^58
  for (int i = 0; i < ctx.num_inputs(); ++i) {
    TENSORD_RETURN_IF_ERROR(CheckConcatInput(ctx, i, axis));
    joined += ctx.input(i).shape.dim(static_cast<int>(axis));
  }
  out.set_dim(static_cast<int>(axis), joined);
  TENSORD_ASSIGN_OR_RETURN(const DType dtype, PromoteInputs(ctx));
  if (ctx.num_inputs() == 1) ctx.SetAlias();
  ctx.SetAttr("axis", axis);
  ctx.AddOutput(dtype, std::move(out));
  return absl::OkStatus();
}

absl::Status InferBroadcastTo(InferenceContext& ctx) {
  const Shape& in = ctx.input(0).shape;
  TENSORD_ASSIGN_OR_RETURN(Shape shape, ShapeAttr(ctx));
  const absl::StatusOr<Shape> met = BroadcastShapes(in, shape);
  if (!met.ok()) return ctx.Error(met.status().message());
  if (*met != shape) {
    return ctx.Error(absl::StrCat(in.ToString(), " doesn't broadcast to ", shape.ToString(),
                                  ": a dimension of the input would have to shrink"));
  }
  if (shape.num_elements() == in.num_elements()) ctx.SetAlias();
  ctx.AddOutput(ctx.input(0).dtype, std::move(shape));
  return absl::OkStatus();
}

}  // namespace

void AppendShapeOps(std::vector<OpSchema>& ops) {
  using Ints = std::vector<int64_t>;
  const size_t first = ops.size();
  ops.push_back({"reshape",
                 "(…) -> shape",
                 "The same elements in another shape; shares the input's memory.",
                 1,
                 1,
                 {RequiredAttr("shape", AttrType::kInts, "the new shape; one entry may be -1")},
                 InferReshape,
                 OpCost::kCopy});
  ops.push_back(
      {"permute",
       "(d0,d1,…) -> (d[axes[0]],d[axes[1]],…)",
       "The input with its dimensions in another order.",
       1,
       1,
       {RequiredAttr("axes", AttrType::kInts, "every axis once; negative axes count from the end")},
       InferPermute,
       OpCost::kCopy});
  ops.push_back(
      {"slice",
       "(…) -> (…)",
       "x[start:stop:step] along each of the axes, with Python's rules.",
       1,
       1,
       {RequiredAttr("starts", AttrType::kInts, "first indices; negative ones count from the end"),
        RequiredAttr("stops", AttrType::kInts, "indices after the last"),
        OptionalAttr("axes", AttrType::kInts, Ints{},
                     "the axes of starts and stops; empty: the first axes"),
        OptionalAttr("steps", AttrType::kInts, Ints{},
                     "not 0; a negative step goes backwards; empty: all 1")},
       InferSlice,
       OpCost::kSelect});
  ops.push_back({"concat",
                 "(…,n1,…), (…,n2,…), … -> (…,n1+n2+…,…)",
                 "The inputs joined along an axis.",
                 1,
                 kMaxConcatInputs,
                 {OptionalAttr("axis", AttrType::kInt, int64_t{0},
                               "the axis; a negative one counts from the end")},
                 InferConcat,
                 OpCost::kCopy});
  ops.push_back({"broadcast_to",
                 "(…) -> shape",
                 "The input repeated along new leading axes and axes of size 1.",
                 1,
                 1,
                 {RequiredAttr("shape", AttrType::kInts, "the new shape")},
                 InferBroadcastTo,
                 OpCost::kCopy});
  for (size_t i = first; i < ops.size(); ++i) ops[i].takes_complex = true;
}

}  // namespace tensord
