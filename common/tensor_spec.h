// The dtype and shape of a tensor.
#pragma once

#include <string>

#include "tensord/common/dtype.h"
#include "tensord/common/shape.h"

namespace tensord {

struct TensorSpec {
  DType dtype = DType::kUnspecified;
  Shape shape;

  int64_t num_elements() const { return shape.num_elements(); }
  int64_t size_bytes() const { return shape.num_elements() * SizeOf(dtype); }

  // Returns INVALID_ARGUMENT if the dtype or the shape is invalid (Shape::Validate).
  absl::Status Validate() const;

  // Returns "float32[2, 3]".
  std::string ToString() const;

  friend bool operator==(const TensorSpec& a, const TensorSpec& b) {
    return a.dtype == b.dtype && a.shape == b.shape;
  }
  friend bool operator!=(const TensorSpec& a, const TensorSpec& b) { return !(a == b); }
};

}  // namespace tensord
