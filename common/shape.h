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

using Dims = absl::InlinedVector<int64_t, 6>;

// A list of dimensions; rank 0 is a scalar, any dimension may be 0. A value type: cheap to copy up
// to rank 6. A Shape may be invalid (a negative dimension, for example): call Validate() for shapes
// of a peer. num_elements() is meaningful only for a valid one.
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

  // The product of the dimensions: 1 for a scalar.
  int64_t num_elements() const {
    int64_t n = 1;
    for (int64_t d : dims_) n *= d;
    return n;
  }

  // INVALID_ARGUMENT naming the limit where a dimension is negative, the rank is over kMaxRank, or
  // the product of the non-zero dimensions is over kMaxElements.
  absl::Status Validate() const;

  // "[2, 3]"; "[]" for a scalar.
  std::string ToString() const;

  friend bool operator==(const Shape& a, const Shape& b) { return a.dims_ == b.dims_; }
  friend bool operator!=(const Shape& a, const Shape& b) { return !(a == b); }
  template <typename H>
  friend H AbslHashValue(H h, const Shape& s) {
    return H::combine(std::move(h), s.dims_);
  }

 private:
  Dims dims_;
};

// Row-major strides in elements: [4, 3] -> {3, 1}.
Dims RowMajorStrides(const Shape& shape);

// NumPy broadcasting: trailing dimensions match, or one of them is 1. INVALID_ARGUMENT otherwise.
absl::StatusOr<Shape> BroadcastShapes(const Shape& a, const Shape& b);

// Strides in elements with which `from` is read as if it had shape `to`; 0 on broadcast axes.
// `from` must broadcast to `to`.
Dims BroadcastStrides(const Shape& from, const Shape& to);

// -rank <= axis < rank -> 0 <= axis < rank; INVALID_ARGUMENT naming the range otherwise.
absl::StatusOr<int> NormalizeAxis(int64_t axis, int rank);

}  // namespace tensord
