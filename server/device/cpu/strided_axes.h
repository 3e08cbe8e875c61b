// Axes with strides.
#pragma once

#include <cstdint>

#include "tensord/common/shape.h"

namespace tensord::server::cpu {

// Needs little memory for any number of elements.
struct StridedAxes {
  Dims sizes, strides;

  // Returns the offset of an element, which is counted in row-major order of the axes.
  int64_t ComputeOffset(int64_t element) const {
    int64_t offset = 0;
    for (size_t axis = sizes.size(); axis-- > 0; element /= sizes[axis]) {
      offset += element % sizes[axis] * strides[axis];
    }
    return offset;
  }
};

}  // namespace tensord::server::cpu
