// The windows of pooling. nvcc and host compilers include this file. TENSORD_ISA_NAMESPACE is
// explained in math_functions.h.
#pragma once

#include <cstdint>

#include "tensord/server/device/math_functions.h"

namespace tensord::server {

// A plane has three spatial axes. If the op has fewer, the first ones have the size 1.
struct PoolGeometry {
  static constexpr int kAxes = 3;
  int64_t in[kAxes], out[kAxes];  // the sizes of x and of the result
  int64_t kernel[kAxes], stride[kAxes], padding[kAxes], dilation[kAxes];
};

inline namespace TENSORD_ISA_NAMESPACE {

// The elements of windows. A window has a tap for each element of the kernel. Taps outside the
// plane have no element.
struct PoolWindows : PoolGeometry {
  TENSORD_HD explicit PoolWindows(const PoolGeometry& geometry) : PoolGeometry(geometry) {}

  TENSORD_HD int64_t in_elements() const { return in[0] * in[1] * in[2]; }
  TENSORD_HD int64_t out_elements() const { return out[0] * out[1] * out[2]; }

  // Returns the position of the first tap of window `o`. It may be negative.
  TENSORD_HD int64_t Start(int axis, int64_t o) const { return o * stride[axis] - padding[axis]; }
  // Returns the first tap of window `o` that has an element, and the tap after the last one.
  TENSORD_HD int64_t FirstTap(int axis, int64_t o) const {
    const int64_t start = Start(axis, o);
    return start >= 0 ? 0 : (-start + dilation[axis] - 1) / dilation[axis];
  }
  TENSORD_HD int64_t EndTap(int axis, int64_t o) const {
    const int64_t room = in[axis] - Start(axis, o);
    if (room <= 0) return 0;
    const int64_t end = (room + dilation[axis] - 1) / dilation[axis];
    return end < kernel[axis] ? end : kernel[axis];
  }
  // Returns the first window whose tap `t` has an element, and the window after the last one.
  TENSORD_HD int64_t FirstWindow(int axis, int64_t t) const {
    const int64_t missing = padding[axis] - t * dilation[axis];
    const int64_t first = missing <= 0 ? 0 : (missing + stride[axis] - 1) / stride[axis];
    return first < out[axis] ? first : out[axis];
  }
  TENSORD_HD int64_t EndWindow(int axis, int64_t t) const {
    const int64_t last = in[axis] - 1 + padding[axis] - t * dilation[axis];
    if (last < 0) return 0;
    const int64_t end = last / stride[axis] + 1;
    return end < out[axis] ? end : out[axis];
  }

  // Returns the number of elements of window `o` along an axis, or, if `with_padding`, of elements
  // and padding. Positions beyond the padding at the end never count. Use it only for averages,
  // whose dilation is 1.
  TENSORD_HD int64_t Count(int axis, int64_t o, bool with_padding) const {
    if (!with_padding) return EndTap(axis, o) - FirstTap(axis, o);
    const int64_t room = in[axis] + padding[axis] - Start(axis, o);
    return room < kernel[axis] ? room : kernel[axis];
  }
};

}  // namespace TENSORD_ISA_NAMESPACE
}  // namespace tensord::server
