#include "tensord/common/shape.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace tensord {

absl::Status Shape::Validate() const {
  if (dims_.size() > kMaxRank) {
    return absl::InvalidArgumentError(absl::StrCat("shape ", ToString(), " has ", dims_.size(),
                                                   " dimensions, and the limit is ", kMaxRank));
  }
  int64_t product = 1;  // of the dimensions that aren't 0
  bool over = false;
  for (int64_t d : dims_) {
    if (d < 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("shape ", ToString(), " has the negative dimension ", d));
    }
    if (d == 0) continue;
    over = over || __builtin_mul_overflow(product, d, &product) || product > kMaxElements;
  }
  if (over) {
    double figure = 1;
    for (int64_t d : dims_) figure *= d == 0 ? 1.0 : static_cast<double>(d);
    return absl::InvalidArgumentError(absl::StrCat("shape ", ToString(), " has about ", figure,
                                                   " elements (zeros left out), and the limit is ",
                                                   kMaxElements, " (2^48)"));
  }
  return absl::OkStatus();
}

std::string Shape::ToString() const {
  constexpr size_t kMaxShown = kMaxRank;
  const absl::Span<const int64_t> all = dims();
  return absl::StrCat("[", absl::StrJoin(all.first(std::min(all.size(), kMaxShown)), ", "),
                      all.size() > kMaxShown ? ", …]" : "]");
}

Dims RowMajorStrides(const Shape& shape) {
  Dims strides(shape.rank());
  int64_t stride = 1;
  for (int axis = shape.rank() - 1; axis >= 0; --axis) {
    strides[axis] = stride;
    stride *= shape.dim(axis);
  }
  return strides;
}

absl::StatusOr<Shape> BroadcastShapes(const Shape& a, const Shape& b) {
  const Shape& longer = a.rank() >= b.rank() ? a : b;
  const Shape& shorter = a.rank() >= b.rank() ? b : a;
  Shape out = longer;
  const int lead = longer.rank() - shorter.rank();
  for (int axis = 0; axis < shorter.rank(); ++axis) {
    const int64_t wide = longer.dim(lead + axis);
    const int64_t narrow = shorter.dim(axis);
    if (wide == narrow || narrow == 1) continue;
    if (wide != 1) {
      const int from_right = axis - shorter.rank();
      return absl::InvalidArgumentError(absl::StrCat(
          "shapes ", a.ToString(), " and ", b.ToString(), " don't broadcast: at dimension ",
          from_right, " the sizes are ", a.dim(a.rank() + from_right), " and ",
          b.dim(b.rank() + from_right), ", and must be equal or one of them 1"));
    }
    out.set_dim(lead + axis, narrow);
  }
  return out;
}

Dims BroadcastStrides(const Shape& from, const Shape& to) {
  const Dims own = RowMajorStrides(from);
  const int lead = to.rank() - from.rank();
  Dims strides(to.rank(), 0);
  for (int axis = 0; axis < from.rank(); ++axis) {
    if (from.dim(axis) == to.dim(lead + axis)) strides[lead + axis] = own[axis];
  }
  return strides;
}

absl::StatusOr<int> NormalizeAxis(int64_t axis, int rank) {
  if (axis >= -rank && axis < rank) return static_cast<int>(axis < 0 ? axis + rank : axis);
  if (rank == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("axis ", axis, " is out of range: a scalar has no axes"));
  }
  return absl::InvalidArgumentError(absl::StrCat("axis ", axis, " is out of range for ", rank,
                                                 rank == 1 ? " dimension" : " dimensions",
                                                 ": it must be from ", -rank, " to ", rank - 1));
}

}  // namespace tensord
