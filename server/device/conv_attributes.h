// Reads the attributes and shapes of conv and its gradients.
#pragma once

#include <cstdint>

#include "absl/types/span.h"
#include "tensord/common/attributes.h"
#include "tensord/common/shape.h"
#include "tensord/common/tensor_spec.h"

namespace tensord::server {

enum class ConvKind : uint8_t { kForward, kBackwardInput, kBackwardWeight };

// A convolution: x (N,C,in…) and weight (O,C/groups,kernel…) -> y (N,O,out…). It has three spatial
// axes. If the op has fewer, the first ones have the size 1.
struct ConvGeometry {
  static constexpr int kAxes = 3;

  int64_t batch = 0, in_channels = 1, out_channels = 1, groups = 1;
  int64_t in[kAxes], out[kAxes], kernel[kAxes], stride[kAxes], dilation[kAxes];
  int64_t low[kAxes], high[kAxes];  // the padding at the beginning and at the end
  int axes = 0;                     // the number of spatial axes of the op

  int64_t in_elements() const { return in[0] * in[1] * in[2]; }       // of a channel of x
  int64_t out_elements() const { return out[0] * out[1] * out[2]; }   // of a channel of y
  int64_t taps() const { return kernel[0] * kernel[1] * kernel[2]; }  // of a window
  int64_t group_in() const { return in_channels / groups; }
  int64_t group_out() const { return out_channels / groups; }

  int64_t x_elements() const { return batch * in_channels * in_elements(); }
  int64_t y_elements() const { return batch * out_channels * out_elements(); }
  int64_t weight_elements() const { return out_channels * group_in() * taps(); }
};

// Returns the convolution with these attributes in normal form.
ConvGeometry ReadConvGeometry(const Attributes& attrs, const Shape& x, const Shape& weight,
                              const Shape& y);

// Returns the convolution of an op: `conv`, or the gradient of its input or weight.
ConvGeometry ReadConvGeometry(ConvKind kind, const Attributes& attrs,
                              absl::Span<const TensorSpec> inputs, const TensorSpec& output);

}  // namespace tensord::server
