#include "tensord/server/device/cpu/along_axis.h"

namespace tensord::server::cpu {

AlongAxisLoop::AlongAxisLoop(const KernelCall& call, const Shape& third, bool within_groups) {
  const Shape& x = call.inputs[0].spec->shape;
  const Shape& indices = call.inputs[1].spec->shape;
  const auto axis = static_cast<int>(call.attrs->Int("axis"));
  const Dims x_strides = RowMajorStrides(x), third_strides = RowMajorStrides(third);
  if (x.rank() > 0) {
    axis_size_ = x.dim(axis);
    axis_stride_ = x_strides[axis];
  }
  for (int d = 0; d < x.rank(); ++d) {
    const bool counts = d > axis || (d < axis && !within_groups);
    Append(indices.dim(d), counts ? x_strides[d] : 0, third.rank() == 0 ? 0 : third_strides[d]);
  }
  if (!sizes_.empty()) return;
  sizes_.push_back(1);
  for (Dims& strides : strides_) strides.push_back(0);
}

void AlongAxisLoop::Append(int64_t size, int64_t stride, int64_t third_stride) {
  if (size == 1) return;
  if (!sizes_.empty() && strides_[0].back() == size * stride &&
      strides_[1].back() == size * third_stride) {
    sizes_.back() *= size;
    strides_[0].back() = stride;
    strides_[1].back() = third_stride;
    return;
  }
  sizes_.push_back(size);
  strides_[0].push_back(stride);
  strides_[1].push_back(third_stride);
}

}  // namespace tensord::server::cpu
