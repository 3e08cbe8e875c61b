// Loops over the indices of gather and scatter.
#pragma once

#include <algorithm>
#include <cstdint>

#include "tensord/common/shape.h"
#include "tensord/server/device/cpu/kernel.h"

namespace tensord::server::cpu {

// A loop over the elements of the index tensor, input 1, in row-major order. For each element, it
// computes two offsets: that in input 0 at the same position, but with the index 0 along the axis,
// and that in a third tensor at the same position. Neighbouring axes are merged if possible. The
// elements along the last of the merged axes are a run.
class AlongAxisLoop {
 public:
  // `third` has the rank and at least the sizes of the index tensor. If its rank is 0, its element
  // is used at all positions. With `within_groups`, offsets in input 0 leave out the axes before
  // the indexed one.
  AlongAxisLoop(const KernelCall& call, const Shape& third, bool within_groups = false);

  int64_t axis_size() const { return axis_size_; }      // of input 0
  int64_t axis_stride() const { return axis_stride_; }  // in input 0
  // The distances between the elements of a run.
  int64_t run_stride() const { return strides_[0].back(); }
  int64_t third_run_stride() const { return strides_[1].back(); }

  // Calls fn(at, offset, third_offset, n) for runs of the elements [begin, end). `at` is the number
  // of the run's first element.
  template <typename Fn>
  void ForEachRun(int64_t begin, int64_t end, Fn fn) const {
    const int64_t length = sizes_.back();
    while (begin < end) {
      int64_t left = begin / length;
      const int64_t within = begin % length, n = std::min(length - within, end - begin);
      int64_t offset = within * run_stride(), third = within * third_run_stride();
      for (size_t d = sizes_.size() - 1; d-- > 0;) {
        const int64_t index = left % sizes_[d];
        left /= sizes_[d];
        offset += index * strides_[0][d];
        third += index * strides_[1][d];
      }
      fn(begin, offset, third, n);
      begin += n;
    }
  }

 private:
  void Append(int64_t size, int64_t stride, int64_t third_stride);

  int64_t axis_size_ = 1, axis_stride_ = 1;
  Dims sizes_;
  Dims strides_[2];
};

// Returns the index counted from the start of an axis of `size` elements. `index` may be negative.
template <typename T>
int64_t FromZero(T index, int64_t size) {
  return static_cast<int64_t>(index) + (index < 0 ? size : 0);
}

}  // namespace tensord::server::cpu
