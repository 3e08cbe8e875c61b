#include "tensord/server/device/conv_attributes.h"

namespace tensord::server {

ConvGeometry ReadConvGeometry(const Attributes& attrs, const Shape& x, const Shape& weight,
                              const Shape& y) {
  ConvGeometry conv;
  conv.batch = x.dim(0);
  conv.in_channels = x.dim(1);
  conv.out_channels = weight.dim(0);
  conv.groups = attrs.Int("groups");
  conv.axes = x.rank() - 2;
  const int lead = ConvGeometry::kAxes - conv.axes;
  for (int a = 0; a < ConvGeometry::kAxes; ++a) {
    const int axis = a - lead;  // of the op; negative if it doesn't have this one
    const bool used = axis >= 0;
    conv.in[a] = used ? x.dim(2 + axis) : 1;
    conv.out[a] = used ? y.dim(2 + axis) : 1;
    conv.kernel[a] = used ? weight.dim(2 + axis) : 1;
    conv.stride[a] = used ? attrs.Ints("stride")[axis] : 1;
    conv.dilation[a] = used ? attrs.Ints("dilation")[axis] : 1;
    conv.low[a] = used ? attrs.Ints("padding")[2 * axis] : 0;
    conv.high[a] = used ? attrs.Ints("padding")[2 * axis + 1] : 0;
  }
  return conv;
}

ConvGeometry ReadConvGeometry(ConvKind kind, const Attributes& attrs,
                              absl::Span<const TensorSpec> inputs, const TensorSpec& output) {
  const Shape &a = inputs[0].shape, &b = inputs[1].shape;
  switch (kind) {
    case ConvKind::kForward:
      return ReadConvGeometry(attrs, a, b, output.shape);
    case ConvKind::kBackwardInput:
      return ReadConvGeometry(attrs, output.shape, b, a);
    case ConvKind::kBackwardWeight:
      return ReadConvGeometry(attrs, b, output.shape, a);
  }
  return {};
}

}  // namespace tensord::server
