// Shape of a dense, row-major tensor.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>

#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace tensord {

inline constexpr int kMaxRank = 32;
// Elements of one tensor: enough for any memory, small enough that bytes and indices never
// overflow.
inline constexpr int64_t kMaxElements = int64_t{1} << 48;

// Dimensions up to this rank need no allocation.
inline constexpr int kInlineRank = 6;
using Dims = absl::InlinedVector<int64_t, kInlineRank>;

// A list of dimensions. Rank 0 is a scalar, and a dimension may be 0. A value type, cheap to copy
// up to kInlineRank. A Shape may be invalid (a negative dimension, for example): call Validate()
// for a shape that a peer sent. num_elements() is meaningful only if the shape is valid.
class Shape {
 public:
  Shape() = default;
  Shape(std::initializer_list<int64_t> dims) : dims_(dims) {}
  explicit Shape(absl::Span<const int64_t> dims) : dims_(dims.begin(), dims.end()) {}

  int rank() const { return static_cast<int>(dims_.size()); }
  int64_t dim(int axis) const { return dims_[axis]; }
  void set_dim(int axis, int64_t size) { dims_[axis] = size; }
  void AppendDim(int64_t size) { dims_.push_back(size); }
  absl::Span<const int64_t> dims() const { return dims_; }

  // Returns the product of the dimensions: 1 for a scalar.
  int64_t num_elements() const {
    int64_t n = 1;
    for (int64_t d : dims_) n *= d;
    return n;
  }

  // Returns INVALID_ARGUMENT if a dimension is negative, the rank exceeds kMaxRank, or the product
  // of the non-zero dimensions exceeds kMaxElements. The message names the limit.
  absl::Status Validate() const;

  // Returns "[2, 3]". For a scalar, returns "[]".
  std::string ToString() const;

  // Compares in a loop, because std::equal calls memcmp, which takes longer for so few dimensions.
  friend bool operator==(const Shape& a, const Shape& b) {
    if (a.rank() != b.rank()) return false;
    for (int axis = 0; axis < a.rank(); ++axis) {
      if (a.dims_[axis] != b.dims_[axis]) return false;
    }
    return true;
  }
  friend bool operator!=(const Shape& a, const Shape& b) { return !(a == b); }
  template <typename H>
  friend H AbslHashValue(H h, const Shape& s) {
    return H::combine(std::move(h), s.dims_);
  }

 private:
  Dims dims_;
};

// Returns the row-major strides in elements: [4, 3] -> {3, 1}.
Dims RowMajorStrides(const Shape& shape);

// Returns the shape to which both broadcast, by NumPy's rules: trailing dimensions are equal, or
// one of them is 1. Otherwise returns INVALID_ARGUMENT.
absl::StatusOr<Shape> BroadcastShapes(const Shape& a, const Shape& b);

// Returns the strides, in elements, that read `from` as if it had the shape `to`. They are 0 on
// broadcast axes. `from` must broadcast to `to`.
Dims BroadcastStrides(const Shape& from, const Shape& to);

// Returns the axis counted from 0. A negative `axis` counts from the end. If `axis` isn't from
// -rank to rank - 1, returns INVALID_ARGUMENT with the range.
absl::StatusOr<int> NormalizeAxis(int64_t axis, int rank);

}  // namespace tensord
