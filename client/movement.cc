#include "tensord/client/movement.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tensord/client/internal/enqueue.h"
#include "tensord/client/internal/function_name.h"
#include "tensord/client/ops.h"

namespace tensord {
namespace {

using internal::NameFunction;
using internal::ToInts;

Tensor Run(absl::string_view op, const Tensor& x, const Attributes& attrs) {
  const Tensor* inputs[] = {&x};
  return internal::Enqueue(op, inputs, attrs);
}

Tensor Invalid(absl::string_view function, const Tensor& x, absl::string_view what) {
  return Tensor::Failed(absl::InvalidArgumentError(
      absl::StrCat(function, ": ", what, "; input is ", x.spec().ToString())));
}

// Returns the shape with an axis of size 1 at a position.
Shape WithAxis(const Shape& shape, int position) {
  Shape result;
  for (int d = 0; d < shape.rank(); ++d) {
    if (d == position) result.AppendDim(1);
    result.AppendDim(shape.dim(d));
  }
  if (position == shape.rank()) result.AppendDim(1);
  return result;
}

}  // namespace

Tensor Flip(const Tensor& x, absl::Span<const int64_t> axes) {
  if (!x.ok()) return x;
  std::vector<int64_t> flipped(axes.begin(), axes.end());
  if (flipped.empty()) {
    for (int axis = 0; axis < x.rank(); ++axis) flipped.push_back(axis);
  }
  if (flipped.empty()) return x;
  const std::vector<int64_t> starts(flipped.size(), kToEnd), stops(flipped.size(), kToBegin);
  return NameFunction("flip", {x},
                      Slice(x, starts, stops,
                            {.axes = flipped, .steps = std::vector<int64_t>(flipped.size(), -1)}));
}

Tensor Roll(const Tensor& x, int64_t shift, int64_t axis) {
  const int64_t shifts[] = {shift}, axes[] = {axis};
  return Roll(x, shifts, axes);
}

Tensor Roll(const Tensor& x, absl::Span<const int64_t> shifts, absl::Span<const int64_t> axes) {
  return Run("roll", x, {{"shift", ToInts(shifts)}, {"axes", ToInts(axes)}});
}

Tensor Tril(const Tensor& x, int64_t k) { return Run("tril", x, {{"k", k}}); }
Tensor Triu(const Tensor& x, int64_t k) { return Run("triu", x, {{"k", k}}); }

Tensor Pad(const Tensor& x, absl::Span<const int64_t> pad, Scalar value) {
  return Run("pad", x, {{"pad", ToInts(pad)}, {"value", internal::ToAttr(value)}});
}

Tensor Unsqueeze(const Tensor& x, int64_t axis) {
  if (!x.ok()) return x;
  const absl::StatusOr<int> position = NormalizeAxis(axis, x.rank() + 1);
  if (!position.ok()) return Invalid("unsqueeze", x, position.status().message());
  return NameFunction("unsqueeze", {x}, Reshape(x, WithAxis(x.shape(), *position)));
}

Tensor Squeeze(const Tensor& x, absl::Span<const int64_t> axes) {
  if (!x.ok()) return x;
  std::vector<bool> removed(x.rank(), axes.empty());
  for (const int64_t axis : axes) {
    const absl::StatusOr<int> position = NormalizeAxis(axis, x.rank());
    if (!position.ok()) return Invalid("squeeze", x, position.status().message());
    removed[*position] = true;
  }
  Shape shape;
  for (int d = 0; d < x.rank(); ++d) {
    if (!removed[d] || x.shape().dim(d) != 1) shape.AppendDim(x.shape().dim(d));
  }
  return NameFunction("squeeze", {x}, Reshape(x, shape));
}

Tensor Flatten(const Tensor& x, int64_t start_axis, int64_t end_axis) {
  if (!x.ok()) return x;
  const int rank = std::max(x.rank(), 1);  // shape [] counts as [1]
  const absl::StatusOr<int> start = NormalizeAxis(start_axis, rank);
  const absl::StatusOr<int> end = NormalizeAxis(end_axis, rank);
  if (!start.ok()) return Invalid("flatten", x, start.status().message());
  if (!end.ok()) return Invalid("flatten", x, end.status().message());
  if (*start > *end) {
    return Invalid("flatten", x, absl::StrCat("axis ", start_axis, " comes after axis ", end_axis));
  }
  Shape shape;
  int64_t joined = 1;
  for (int d = 0; d < x.rank(); ++d) {
    if (d >= *start && d <= *end) joined *= x.shape().dim(d);
    if (d < *start || d > *end) shape.AppendDim(x.shape().dim(d));
    if (d == *end) shape.AppendDim(joined);
  }
  if (x.rank() == 0) shape.AppendDim(1);
  return NameFunction("flatten", {x}, Reshape(x, shape));
}

Tensor Select(const Tensor& x, int64_t axis, int64_t index) {
  if (!x.ok()) return x;
  const absl::StatusOr<int> position = NormalizeAxis(axis, x.rank());
  if (!position.ok()) return Invalid("select", x, position.status().message());
  const int64_t size = x.shape().dim(*position);
  if (index < -size || index >= size) {
    return Invalid(
        "select", x,
        absl::StrCat("index ", index, " is out of range for axis ", *position, " of size ", size));
  }
  const int64_t begin = index < 0 ? index + size : index;
  Shape shape;
  for (int d = 0; d < x.rank(); ++d) {
    if (d != *position) shape.AppendDim(x.shape().dim(d));
  }
  return NameFunction("select", {x},
                      Reshape(Slice(x, {begin}, {begin + 1}, {.axes = {*position}}), shape));
}

Tensor Stack(absl::Span<const Tensor> tensors, int64_t axis) {
  if (tensors.empty()) {
    return Tensor::Failed(absl::InvalidArgumentError("stack: there are no tensors"));
  }
  const Tensor& first = tensors[0];
  std::vector<Tensor> parts;
  for (const Tensor& tensor : tensors) {
    if (!tensor.ok()) return tensor;
    if (tensor.shape() != first.shape()) {
      return Invalid("stack", tensor,
                     absl::StrCat("the tensors must have one shape, and the first one has ",
                                  first.shape().ToString()));
    }
  }
  const absl::StatusOr<int> position = NormalizeAxis(axis, first.rank() + 1);
  if (!position.ok()) return Invalid("stack", first, position.status().message());
  const Shape shape = WithAxis(first.shape(), *position);
  for (const Tensor& tensor : tensors) parts.push_back(Reshape(tensor, shape));
  return NameFunction("stack", {first}, Concat(parts, *position));
}

}  // namespace tensord
