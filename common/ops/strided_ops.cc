// Views of a tensor's memory with any shape, strides and dtype: as_strided, as_strided_scatter,
// bitcast.
#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"
#include "tensord/common/ops/op_inference.h"
#include "tensord/common/ops/op_registry.h"
#include "tensord/common/util/status_macros.h"

namespace tensord {
namespace {

// Holds the sum of kMaxRank products of a dimension, at most kMaxElements, and an int64_t.
using Wide = __int128;

// Returns the value. If it is outside the range of int64_t, returns the nearest value in the range.
int64_t Saturate(Wide value) {
  using Limits = std::numeric_limits<int64_t>;
  return static_cast<int64_t>(std::clamp<Wide>(value, Limits::min(), Limits::max()));
}

// A view of input 0: element (i, j, …) is the element offset + i strides[0] + j strides[1] + … of
// its row-major order.
struct StridedView {
  Shape shape;
  Dims strides;        // 0 for axes of size 1, and if the view is empty
  int64_t offset = 0;  // 0 if the view is empty
};

absl::Status RequireInside(const InferenceContext& ctx, const StridedView& view) {
  if (view.shape.num_elements() == 0) return absl::OkStatus();
  Wide first = view.offset, last = view.offset;
  for (int d = 0; d < view.shape.rank(); ++d) {
    const Wide span = Wide{view.shape.dim(d) - 1} * view.strides[d];
    (span < 0 ? first : last) += span;
  }
  const int64_t elements = ctx.input(0).num_elements();
  if (first >= 0 && last < elements) return absl::OkStatus();
  return ctx.Error(absl::StrCat("shape ", view.shape.ToString(), " with strides ",
                                IntsForMessage(view.strides), " and offset ", view.offset,
                                " reaches from element ", Saturate(first), " to ", Saturate(last),
                                ", and input 0 has ", elements, " elements"));
}

// Reads the attributes, brings them into normal form and checks them.
absl::StatusOr<StridedView> ReadView(InferenceContext& ctx) {
  StridedView view;
  TENSORD_ASSIGN_OR_RETURN(view.shape, ShapeAttr(ctx));
  const std::vector<int64_t>& strides = ctx.attrs().Ints("strides");
  view.strides.assign(strides.begin(), strides.end());
  view.offset = ctx.attrs().Int("offset");
  if (view.strides.size() != static_cast<size_t>(view.shape.rank())) {
    return ctx.Error(absl::StrCat("shape has ", view.shape.rank(), " entries and strides has ",
                                  view.strides.size(), ": both need the same number"));
  }
  TENSORD_RETURN_IF_ERROR(RequireInside(ctx, view));
  const bool empty = view.shape.num_elements() == 0;
  if (empty) view.offset = 0;
  for (int d = 0; d < view.shape.rank(); ++d) {
    if (empty || view.shape.dim(d) == 1) view.strides[d] = 0;
  }
  ctx.SetInts("strides", view.strides);
  ctx.SetAttr("offset", view.offset);
  return view;
}

// Returns whether the view has its elements in the order of the input, without gaps.
bool IsDense(const StridedView& view) {
  const Dims dense = RowMajorStrides(view.shape);
  for (int d = 0; d < view.shape.rank(); ++d) {
    if (view.shape.dim(d) != 1 && view.strides[d] != dense[d]) return false;
  }
  return true;
}

absl::Status InferAsStrided(InferenceContext& ctx) {
  TENSORD_ASSIGN_OR_RETURN(StridedView view, ReadView(ctx));
  const DType dtype = ctx.input(0).dtype;
  if (IsDense(view)) {
    SetAliasIfWorthwhile(ctx, view.offset * SizeOf(dtype),
                         view.shape.num_elements() * SizeOf(dtype));
  }
  ctx.AddOutput(dtype, std::move(view.shape));
  return absl::OkStatus();
}

// Returns an error if two elements of the view might have the same place. They have different ones
// if each stride exceeds the distance between the first and the last element of the axes with
// smaller strides. The view must be inside the input.
absl::Status RequireDistinctPlaces(const InferenceContext& ctx, const StridedView& view) {
  struct Axis {
    int64_t stride, size;
  };
  std::vector<Axis> axes;
  for (int d = 0; d < view.shape.rank(); ++d) {
    if (view.shape.dim(d) == 1) continue;
    axes.push_back({std::abs(view.strides[d]), view.shape.dim(d)});
  }
  std::sort(axes.begin(), axes.end(),
            [](const Axis& a, const Axis& b) { return a.stride < b.stride; });
  int64_t span = 0;
  for (const Axis& axis : axes) {
    if (axis.stride <= span) {
      return ctx.Error(absl::StrCat("elements of shape ", view.shape.ToString(), " with strides ",
                                    IntsForMessage(view.strides), " may have the same place"));
    }
    span += (axis.size - 1) * axis.stride;
  }
  return absl::OkStatus();
}

absl::Status InferAsStridedScatter(InferenceContext& ctx) {
  const TensorSpec& x = ctx.input(0);
  const TensorSpec& values = ctx.input(1);
  TENSORD_ASSIGN_OR_RETURN(const StridedView view, ReadView(ctx));
  if (values.dtype != x.dtype) {
    return ctx.Error(absl::StrCat("input 1 must have the dtype of input 0, ", DTypeName(x.dtype),
                                  ", and not ", DTypeName(values.dtype), ": cast it first"));
  }
  if (values.shape != view.shape) {
    return ctx.Error(absl::StrCat("input 1 has the shape ", values.shape.ToString(),
                                  ", and must have the shape ", view.shape.ToString()));
  }
  if (values.num_elements() > 0) {
    TENSORD_RETURN_IF_ERROR(RequireDistinctPlaces(ctx, view));
  } else {
    ctx.SetAlias();
  }
  ctx.AddOutput(x.dtype, x.shape);
  return absl::OkStatus();
}

absl::Status InferBitcast(InferenceContext& ctx) {
  const TensorSpec& x = ctx.input(0);
  const DType dtype = ctx.attrs().Type("dtype");
  Shape shape = x.shape;
  if (SizeOf(dtype) != SizeOf(x.dtype)) {
    const int last = shape.rank() - 1;
    if (last < 0) {
      return ctx.Error(absl::StrCat("a scalar keeps the size of its element, and ",
                                    DTypeName(dtype), " has another: reshape it to [1] first"));
    }
    const int64_t bytes = shape.dim(last) * SizeOf(x.dtype);
    if (bytes % SizeOf(dtype) != 0) {
      return ctx.Error(absl::StrCat("the last dimension has ", bytes,
                                    " bytes, which isn't a multiple of the ", SizeOf(dtype),
                                    " bytes of ", DTypeName(dtype)));
    }
    shape.set_dim(last, bytes / SizeOf(dtype));
  }
  ctx.SetAlias();
  ctx.AddOutput(dtype, std::move(shape));
  return absl::OkStatus();
}

}  // namespace

void AppendStridedOps(std::vector<OpSchema>& ops) {
  const std::vector<AttrDef> view = {
      RequiredAttr("shape", AttrType::kInts, "the shape of the view"),
      RequiredAttr("strides", AttrType::kInts, "in elements of x, of any sign; one for each axis"),
      OptionalAttr("offset", AttrType::kInt, int64_t{0}, "the position of element 0 in x")};
  ops.push_back({.name = "as_strided",
                 .signature = "x -> shape",
                 .doc = "The elements of x at offset + i strides[0] + j strides[1] + ….",
                 .min_inputs = 1,
                 .max_inputs = 1,
                 .attrs = view,
                 .infer = InferAsStrided,
                 .cost = OpCost::kSelect,
                 .takes_complex = true});
  ops.push_back({.name = "as_strided_scatter",
                 .signature = "x, values -> x.shape",
                 .doc = "x with values in place of the elements of as_strided, which must be "
                        "distinct; may overwrite a donated x.",
                 .min_inputs = 2,
                 .max_inputs = 2,
                 .attrs = view,
                 .infer = InferAsStridedScatter,
                 .cost = OpCost::kCopy,
                 .takes_complex = true,
                 .input_names = {"x", "values"},
                 .updates_input = true});
  ops.push_back({.name = "bitcast",
                 .signature = "(…,n) -> (…,n · size of x's dtype / size of dtype)",
                 .doc = "The bytes of x as elements of another dtype; shares the input's memory.",
                 .min_inputs = 1,
                 .max_inputs = 1,
                 .attrs = {RequiredAttr("dtype", AttrType::kDType, "the dtype of the result")},
                 .infer = InferBitcast,
                 .cost = OpCost::kCopy,
                 .takes_complex = true});
}

}  // namespace tensord
