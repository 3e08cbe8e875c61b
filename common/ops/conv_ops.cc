// Convolution over one to three spatial axes, and its gradients.
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tensord/common/ops/op_inference.h"
#include "tensord/common/ops/op_registry.h"
#include "tensord/common/util/status_macros.h"

namespace tensord {
namespace {

// Returns OK if each number is from `min` to kMaxWindowNumber.
absl::Status CheckNumbers(const InferenceContext& ctx, absl::string_view name,
                          absl::Span<const int64_t> values, int64_t min) {
  for (const int64_t value : values) {
    if (value >= min && value <= kMaxWindowNumber) continue;
    return ctx.Error(absl::StrCat(name, " is ", IntsForMessage(values),
                                  ": each number must be from ", min, " to ", kMaxWindowNumber));
  }
  return absl::OkStatus();
}

// Brings an attribute with a number for each spatial axis into normal form. One number counts for
// all axes. The default is 1.
absl::StatusOr<std::vector<int64_t>> ReadPerAxis(InferenceContext& ctx, absl::string_view name,
                                                 int axes) {
  std::vector<int64_t> values = ctx.attrs().Ints(name);
  TENSORD_RETURN_IF_ERROR(CheckNumbers(ctx, name, values, 1));
  if (values.empty()) values = {1};
  if (values.size() == 1) values.resize(axes, values[0]);
  if (static_cast<int>(values.size()) != axes) {
    return ctx.Error(absl::StrCat(name, " is ", IntsForMessage(values),
                                  ": name one number for each of the ", axes,
                                  " spatial axes, or one for all"));
  }
  ctx.SetAttr(name, values);
  return values;
}

// Does the same for the padding, whose normal form has two numbers for each axis: those at its
// beginning and at its end. The default is 0.
absl::StatusOr<std::vector<int64_t>> ReadPadding(InferenceContext& ctx, int axes) {
  std::vector<int64_t> values = ctx.attrs().Ints("padding");
  TENSORD_RETURN_IF_ERROR(CheckNumbers(ctx, "padding", values, 0));
  if (values.empty()) values = {0};
  if (values.size() == 1) values.resize(axes, values[0]);
  const int count = static_cast<int>(values.size());
  if (count != axes && count != 2 * axes) {
    return ctx.Error(absl::StrCat("padding is ", IntsForMessage(values),
                                  ": name one number for each of the ", axes,
                                  " spatial axes, two for each (at its beginning and its end), or "
                                  "one for all"));
  }
  if (count == axes) {
    std::vector<int64_t> both;
    for (const int64_t value : values) both.insert(both.end(), {value, value});
    values = std::move(both);
  }
  ctx.SetAttr("padding", values);
  return values;
}

// Returns the number of spatial axes of a weight, (O,C/groups,kernel…).
absl::StatusOr<int> SpatialAxes(const InferenceContext& ctx, const Shape& w) {
  const int axes = w.rank() - 2;
  if (axes < 1 || axes > kMaxSpatialAxes) {
    return ctx.Error(absl::StrCat("the weight must be (out,in/groups,kernel…) with one to ",
                                  kMaxSpatialAxes, " axes of the kernel, and has ", w.rank(),
                                  " dimensions"));
  }
  return axes;
}

// Returns OK if x is (N,C,spatial…) with as many axes as the weight has, and only N may be 0.
absl::Status CheckAxes(const InferenceContext& ctx, const Shape& x, const Shape& w) {
  if (x.rank() != w.rank()) {
    return ctx.Error(absl::StrCat("for a kernel of ", w.rank() - 2, " axes, x must be (batch,in,",
                                  w.rank() - 2, " spatial axes), and has ", x.rank(),
                                  " dimensions"));
  }
  for (int axis = 0; axis < w.rank(); ++axis) {
    if (w.dim(axis) > kMaxWindowNumber) {
      return ctx.Error(
          absl::StrCat("each dimension of the weight must be at most ", kMaxWindowNumber));
    }
    if (w.dim(axis) >= 1 && (axis == 0 || x.dim(axis) >= 1)) continue;
    return ctx.Error(absl::StrCat("only the batch may be empty: x is ", x.ToString(),
                                  " and the weight ", w.ToString()));
  }
  return absl::OkStatus();
}

// Returns OK if the channels of x and of the weight fit together.
absl::Status CheckChannels(const InferenceContext& ctx, const Shape& x, const Shape& w) {
  const int64_t groups = ctx.attrs().Int("groups");
  if (groups < 1) return ctx.Error(absl::StrCat("groups is ", groups, " and must be 1 or more"));
  if (w.dim(0) % groups != 0) {
    return ctx.Error(absl::StrCat("the weight has ", w.dim(0),
                                  " output channels, which don't divide into ", groups, " groups"));
  }
  if (x.dim(1) % groups != 0) {
    return ctx.Error(
        absl::StrCat("x has ", x.dim(1), " channels, which don't divide into ", groups, " groups"));
  }
  if (x.dim(1) / groups != w.dim(1)) {
    return ctx.Error(
        absl::StrCat("x has ", x.dim(1), " channels, and the weight takes ", w.dim(1),
                     groups == 1 ? "" : absl::StrCat(" in each of ", groups, " groups"),
                     x.dim(1) % w.dim(1) == 0 && w.dim(0) % (x.dim(1) / w.dim(1)) == 0
                         ? absl::StrCat("; with groups=", x.dim(1) / w.dim(1), " they would match")
                         : ""));
  }
  return absl::OkStatus();
}

// Returns the shape of the convolution of x with the weight. Brings the attributes into normal
// form.
absl::StatusOr<Shape> ConvShape(InferenceContext& ctx, const Shape& x, const Shape& w) {
  TENSORD_ASSIGN_OR_RETURN(const int axes, SpatialAxes(ctx, w));
  TENSORD_RETURN_IF_ERROR(CheckAxes(ctx, x, w));
  TENSORD_RETURN_IF_ERROR(CheckChannels(ctx, x, w));
  TENSORD_ASSIGN_OR_RETURN(const std::vector<int64_t> stride, ReadPerAxis(ctx, "stride", axes));
  TENSORD_ASSIGN_OR_RETURN(const std::vector<int64_t> dilation, ReadPerAxis(ctx, "dilation", axes));
  TENSORD_ASSIGN_OR_RETURN(const std::vector<int64_t> padding, ReadPadding(ctx, axes));
  Shape y = x;
  y.set_dim(1, w.dim(0));
  for (int a = 0; a < axes; ++a) {
    const int64_t padded = x.dim(2 + a) + padding[2 * a] + padding[2 * a + 1];
    const int64_t extent = (w.dim(2 + a) - 1) * dilation[a] + 1;
    if (extent > padded) {
      return ctx.Error(absl::StrCat("the kernel is larger than the padded x: spatial axis ", a,
                                    " has ", padded, " elements, and the kernel spans ", extent));
    }
    y.set_dim(2 + a, (padded - extent) / stride[a] + 1);
  }
  return y;
}

absl::StatusOr<DType> FloatingDType(InferenceContext& ctx) {
  for (int i = 0; i < ctx.num_inputs(); ++i) {
    TENSORD_RETURN_IF_ERROR(RequireFloating(ctx, ctx.input(i).dtype));
  }
  return PromoteInputs(ctx);
}

absl::Status InferConv(InferenceContext& ctx) {
  const Shape& w = ctx.input(1).shape;
  TENSORD_ASSIGN_OR_RETURN(const DType dtype, FloatingDType(ctx));
  TENSORD_ASSIGN_OR_RETURN(Shape y, ConvShape(ctx, ctx.input(0).shape, w));
  if (ctx.num_inputs() == 3) {
    TENSORD_RETURN_IF_ERROR(
        RequireShape(ctx, 2, Shape({w.dim(0)}), "that of the weight's output channels"));
  }
  TENSORD_RETURN_IF_ERROR(RequireActivation(ctx));
  ctx.AddOutput(dtype, std::move(y));
  return absl::OkStatus();
}

// Infers a gradient of conv whose attribute "shape" is that of x, or of the weight.
absl::Status InferConvBackward(InferenceContext& ctx, bool of_input) {
  TENSORD_ASSIGN_OR_RETURN(const DType dtype, FloatingDType(ctx));
  TENSORD_ASSIGN_OR_RETURN(Shape result, ShapeAttr(ctx));
  const Shape& other = ctx.input(1).shape;
  TENSORD_ASSIGN_OR_RETURN(
      const Shape y, of_input ? ConvShape(ctx, result, other) : ConvShape(ctx, other, result));
  TENSORD_RETURN_IF_ERROR(RequireShape(ctx, 0, y, "that of the result of conv"));
  ctx.AddOutput(dtype, std::move(result));
  return absl::OkStatus();
}

absl::Status InferConvBackwardInput(InferenceContext& ctx) { return InferConvBackward(ctx, true); }
absl::Status InferConvBackwardWeight(InferenceContext& ctx) {
  return InferConvBackward(ctx, false);
}

std::vector<AttrDef> ConvAttrs() {
  return {OptionalAttr("stride", AttrType::kInts, std::vector<int64_t>{},
                       "from window to window along each spatial axis; default: 1"),
          OptionalAttr("padding", AttrType::kInts, std::vector<int64_t>{},
                       "zeros added at both ends of each spatial axis; with two numbers for each "
                       "axis, at its beginning and at its end; default: 0"),
          OptionalAttr("dilation", AttrType::kInts, std::vector<int64_t>{},
                       "from element to element of a window; default: 1"),
          OptionalAttr("groups", AttrType::kInt, int64_t{1},
                       "the number of groups of channels, each of which has its own weights"),
          AllowTf32()};
}

std::vector<AttrDef> ConvBackwardAttrs(absl::string_view shape_doc) {
  std::vector<AttrDef> attrs = ConvAttrs();
  attrs.push_back(RequiredAttr("shape", AttrType::kInts, shape_doc));
  return attrs;
}

}  // namespace

void AppendConvOps(std::vector<OpSchema>& ops) {
  std::vector<AttrDef> attrs = ConvAttrs();
  attrs.push_back(ActivationAttr());
  ops.push_back({.name = "conv",
                 .signature = "(N,C,D,H,W), (O,C/groups,kernel…), (O) -> (N,O,D',H',W')",
                 .doc =
                     "activation(the convolution of x with the weight + bias), over one to three "
                     "spatial axes; the bias is optional.",
                 .min_inputs = 2,
                 .max_inputs = 3,
                 .attrs = std::move(attrs),
                 .infer = InferConv,
                 .input_names = {"x", "weight", "bias"}});
  ops.push_back({.name = "conv_backward_input",
                 .signature = "(N,O,D',H',W'), (O,C/groups,kernel…) -> (N,C,D,H,W)",
                 .doc =
                     "The gradient of conv's x, of its result's gradient and the weight. This is "
                     "the transposed convolution, too.",
                 .min_inputs = 2,
                 .max_inputs = 2,
                 .attrs = ConvBackwardAttrs("the shape of x"),
                 .infer = InferConvBackwardInput,
                 .input_names = {"gradient", "weight"}});
  ops.push_back({.name = "conv_backward_weight",
                 .signature = "(N,O,D',H',W'), (N,C,D,H,W) -> (O,C/groups,kernel…)",
                 .doc = "The gradient of conv's weight, of its result's gradient and x.",
                 .min_inputs = 2,
                 .max_inputs = 2,
                 .attrs = ConvBackwardAttrs("the shape of the weight"),
                 .infer = InferConvBackwardWeight,
                 .input_names = {"gradient", "x"}});
}

}  // namespace tensord
