// Pooling over windows of the last axes, and its gradients.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "tensord/common/ops/op_inference.h"
#include "tensord/common/ops/op_registry.h"
#include "tensord/common/util/status_macros.h"

namespace tensord {
namespace {

// Reads an attribute with a number for each spatial axis, and brings it into normal form: `count`
// numbers of at least `least`. One number is used for all axes. If the attribute is empty, takes
// `otherwise`.
absl::StatusOr<std::vector<int64_t>> ReadPerAxis(InferenceContext& ctx, absl::string_view name,
                                                 size_t count, int64_t least,
                                                 const std::vector<int64_t>& otherwise) {
  std::vector<int64_t> values = ctx.attrs().Ints(name);
  if (values.empty()) values = otherwise;
  if (values.size() == 1) values.resize(count, values[0]);
  if (values.size() != count) {
    return ctx.Error(absl::StrCat(name, " is ", IntsForMessage(values),
                                  ": name one number for each of the ", count,
                                  " axes of the kernel, or one for all"));
  }
  for (const int64_t value : values) {
    if (value >= least && value <= kMaxWindowNumber) continue;
    return ctx.Error(absl::StrCat(name, " is ", IntsForMessage(values),
                                  ": each number must be from ", least, " to ", kMaxWindowNumber));
  }
  ctx.SetAttr(name, values);
  return values;
}

struct Windows {
  std::vector<int64_t> kernel, stride, padding, dilation;
};

absl::StatusOr<Windows> ReadWindows(InferenceContext& ctx, bool has_dilation) {
  Windows windows;
  const size_t axes = ctx.attrs().Ints("kernel").size();
  if (axes < 1 || axes > kMaxSpatialAxes) {
    return ctx.Error(absl::StrCat("kernel is ", IntsForMessage(ctx.attrs().Ints("kernel")),
                                  ": name one to ", kMaxSpatialAxes, " numbers"));
  }
  TENSORD_ASSIGN_OR_RETURN(windows.kernel, ReadPerAxis(ctx, "kernel", axes, 1, {}));
  const absl::Status valid = Shape(windows.kernel).Validate();
  if (!valid.ok()) return ctx.Error(absl::StrCat("kernel: ", valid.message()));
  TENSORD_ASSIGN_OR_RETURN(windows.stride, ReadPerAxis(ctx, "stride", axes, 1, windows.kernel));
  TENSORD_ASSIGN_OR_RETURN(windows.padding, ReadPerAxis(ctx, "padding", axes, 0, {0}));
  windows.dilation.assign(axes, 1);
  if (has_dilation) {
    TENSORD_ASSIGN_OR_RETURN(windows.dilation, ReadPerAxis(ctx, "dilation", axes, 1, {1}));
  }
  for (size_t a = 0; a < axes; ++a) {
    const int64_t extent = (windows.kernel[a] - 1) * windows.dilation[a] + 1;
    if (windows.padding[a] <= extent / 2) continue;
    return ctx.Error(absl::StrCat("padding ", windows.padding[a], " exceeds half of the window, ",
                                  extent, " elements"));
  }
  return windows;
}

int64_t FloorDivide(int64_t a, int64_t b) { return a / b - (a % b < 0 ? 1 : 0); }

// Returns the number of windows along an axis of `size` elements, or an error if there is none.
absl::StatusOr<int64_t> CountWindows(const InferenceContext& ctx, const Windows& windows, size_t a,
                                     int64_t size) {
  const int64_t stride = windows.stride[a], padding = windows.padding[a];
  const int64_t extent = (windows.kernel[a] - 1) * windows.dilation[a] + 1;
  const bool ceil = ctx.attrs().Bool("ceil_mode");
  const int64_t room = size + 2 * padding - extent;
  int64_t count = FloorDivide(room + (ceil ? stride - 1 : 0), stride) + 1;
  // The last window must begin before the padding at the end.
  if (ceil && (count - 1) * stride >= size + padding) --count;
  if (size >= 1 && count >= 1) return count;
  return ctx.Error(absl::StrCat("an axis of size ", size, " with the padding ", padding,
                                " is shorter than the window, ", extent, " elements"));
}

// Returns the shape of the result for an input of the shape `x`.
absl::StatusOr<Shape> PooledShape(const InferenceContext& ctx, const Windows& windows,
                                  const Shape& x) {
  const int axes = static_cast<int>(windows.kernel.size()), first = x.rank() - axes;
  if (first < 0) {
    return ctx.Error(
        absl::StrCat("a kernel of ", axes, " axes needs as many dimensions, and x has ", x.rank()));
  }
  Shape pooled = x;
  for (int a = 0; a < axes; ++a) {
    TENSORD_ASSIGN_OR_RETURN(const int64_t count, CountWindows(ctx, windows, a, x.dim(first + a)));
    pooled.set_dim(first + a, count);
  }
  return pooled;
}

absl::Status InferPool(InferenceContext& ctx, bool is_max) {
  const TensorSpec& x = ctx.input(0);
  TENSORD_RETURN_IF_ERROR(RequireFloating(ctx, x.dtype));
  TENSORD_ASSIGN_OR_RETURN(const Windows windows, ReadWindows(ctx, is_max));
  TENSORD_ASSIGN_OR_RETURN(const Shape pooled, PooledShape(ctx, windows, x.shape));
  ctx.AddOutput(x.dtype, pooled);
  if (is_max) ctx.AddOutput(DType::kInt64, pooled);
  return absl::OkStatus();
}

// Infers the gradient of x, whose last dimensions are the attribute "size".
absl::Status InferPoolBackward(InferenceContext& ctx, bool is_max) {
  const TensorSpec& gradient = ctx.input(0);
  TENSORD_RETURN_IF_ERROR(RequireFloating(ctx, gradient.dtype));
  TENSORD_ASSIGN_OR_RETURN(const Windows windows, ReadWindows(ctx, is_max));
  const std::vector<int64_t> size = ctx.attrs().Ints("size");
  const int axes = static_cast<int>(windows.kernel.size());
  const int first = gradient.shape.rank() - axes;
  if (static_cast<int>(size.size()) != axes || first < 0) {
    return ctx.Error(absl::StrCat("size is ", IntsForMessage(size), ": name the last ", axes,
                                  " dimensions of x"));
  }
  Shape x = gradient.shape;
  for (int a = 0; a < axes; ++a) x.set_dim(first + a, size[a]);
  const absl::Status valid = x.Validate();
  if (!valid.ok()) return ctx.Error(absl::StrCat("x: ", valid.message()));
  TENSORD_ASSIGN_OR_RETURN(const Shape pooled, PooledShape(ctx, windows, x));
  TENSORD_RETURN_IF_ERROR(RequireShape(ctx, 0, pooled, "that of the windows of x"));
  if (is_max) {
    TENSORD_RETURN_IF_ERROR(RequireDType(ctx, 1, DType::kInt64, "the dtype of max_pool's indices"));
    TENSORD_RETURN_IF_ERROR(RequireShape(ctx, 1, pooled, "that of the gradient"));
  }
  ctx.AddOutput(gradient.dtype, x);
  return absl::OkStatus();
}

absl::Status InferMaxPool(InferenceContext& ctx) { return InferPool(ctx, true); }
absl::Status InferAvgPool(InferenceContext& ctx) { return InferPool(ctx, false); }
absl::Status InferMaxPoolBackward(InferenceContext& ctx) { return InferPoolBackward(ctx, true); }
absl::Status InferAvgPoolBackward(InferenceContext& ctx) { return InferPoolBackward(ctx, false); }

std::vector<AttrDef> MakeWindowAttrs(bool is_max, bool is_backward) {
  std::vector<AttrDef> attrs = {
      RequiredAttr("kernel", AttrType::kInts,
                   "the size of the windows along each of the last one to three axes"),
      OptionalAttr("stride", AttrType::kInts, std::vector<int64_t>{},
                   "the distance between neighbouring windows; default: the kernel"),
      OptionalAttr("padding", AttrType::kInts, std::vector<int64_t>{},
                   "elements added at both ends of an axis; default: 0"),
      OptionalAttr("ceil_mode", AttrType::kBool, false,
                   "windows may reach beyond the end of the padding")};
  if (is_max) {
    attrs.push_back(OptionalAttr("dilation", AttrType::kInts, std::vector<int64_t>{},
                                 "the distance between elements of a window; default: 1"));
  } else {
    attrs.push_back(OptionalAttr("count_include_pad", AttrType::kBool, true,
                                 "whether padding counts as elements when a sum is divided"));
    attrs.push_back(OptionalAttr("divisor", AttrType::kInt, int64_t{0},
                                 "divides the sums; 0: the number of elements does"));
  }
  if (is_backward) {
    attrs.push_back(RequiredAttr("size", AttrType::kInts, "the last dimensions of x"));
  }
  return attrs;
}

}  // namespace

void AppendPoolOps(std::vector<OpSchema>& ops) {
  ops.push_back({.name = "max_pool",
                 .signature = "(…,D,H,W) -> (…,D',H',W'), indices (…,D',H',W')",
                 .doc =
                     "The largest element of each window, NaN if any is NaN, and its position in "
                     "the flattened spatial axes.",
                 .min_inputs = 1,
                 .max_inputs = 1,
                 .attrs = MakeWindowAttrs(true, false),
                 .infer = InferMaxPool,
                 .cost = OpCost::kWindows});
  ops.push_back({.name = "max_pool_backward",
                 .signature = "(…,D',H',W'), indices (…,D',H',W') -> (…,D,H,W)",
                 .doc = "The gradient of max_pool, from its result's gradient and its indices.",
                 .min_inputs = 2,
                 .max_inputs = 2,
                 .attrs = MakeWindowAttrs(true, true),
                 .infer = InferMaxPoolBackward,
                 .cost = OpCost::kCompute,
                 .input_names = {"gradient", "indices"}});
  ops.push_back({.name = "avg_pool",
                 .signature = "(…,D,H,W) -> (…,D',H',W')",
                 .doc = "The mean of each window.",
                 .min_inputs = 1,
                 .max_inputs = 1,
                 .attrs = MakeWindowAttrs(false, false),
                 .infer = InferAvgPool,
                 .cost = OpCost::kWindows});
  ops.push_back({.name = "avg_pool_backward",
                 .signature = "(…,D',H',W') -> (…,D,H,W)",
                 .doc = "The gradient of avg_pool, from its result's gradient.",
                 .min_inputs = 1,
                 .max_inputs = 1,
                 .attrs = MakeWindowAttrs(false, true),
                 .infer = InferAvgPoolBackward,
                 .cost = OpCost::kWindows,
                 .input_names = {"gradient"}});
}

}  // namespace tensord
