#include "tensord/client/composite/movement.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tensord/client/creation.h"
#include "tensord/client/internal/composite.h"
#include "tensord/client/ops.h"

namespace tensord {
namespace {

using internal::Composite;

Tensor Invalid(absl::string_view function, const Tensor& x, absl::string_view what) {
  return Tensor::Failed(absl::InvalidArgumentError(
      absl::StrCat(function, ": ", what, "; input is ", x.spec().ToString())));
}

// Returns column - row for the elements of a matrix, as int64 of shape [rows, columns].
Tensor DiagonalNumbers(const Tensor& x) {
  const int64_t rows = x.shape().dim(x.rank() - 2), columns = x.shape().dim(x.rank() - 1);
  const Tensor row = Reshape(Arange(x.device(), rows), {rows, 1});
  return Arange(x.device(), columns) - row;
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
  return Composite("flip", {x},
                   Slice(x, starts, stops,
                         {.axes = flipped, .steps = std::vector<int64_t>(flipped.size(), -1)}));
}

Tensor Roll(const Tensor& x, int64_t shift, int64_t axis) {
  if (!x.ok()) return x;
  const absl::StatusOr<int> resolved = NormalizeAxis(axis, x.rank());
  if (!resolved.ok()) return Invalid("roll", x, resolved.status().message());
  const int64_t size = x.shape().dim(*resolved);
  if (size == 0) return x;
  const int64_t kept = ((-(shift % size)) % size + size) % size;  // the first element of the result
  if (kept == 0) return x;
  const Tensor parts[] = {Slice(x, {kept}, {size}, {.axes = {*resolved}}),
                          Slice(x, {0}, {kept}, {.axes = {*resolved}})};
  return Composite("roll", {x}, Concat(parts, *resolved));
}

Tensor Roll(const Tensor& x, absl::Span<const int64_t> shifts, absl::Span<const int64_t> axes) {
  if (!x.ok()) return x;
  if (axes.empty() && shifts.size() == 1) {
    return Reshape(Roll(Reshape(x, {-1}), shifts[0], 0), x.shape());
  }
  if (axes.size() != shifts.size()) {
    return Invalid("roll", x,
                   absl::StrCat("there are ", shifts.size(), " shifts and ", axes.size(), " axes"));
  }
  Tensor rolled = x;
  for (size_t i = 0; i < axes.size(); ++i) rolled = Roll(rolled, shifts[i], axes[i]);
  return rolled;
}

Tensor Tril(const Tensor& x, int64_t k) {
  if (!x.ok()) return x;
  if (x.rank() < 2) return Invalid("tril", x, "needs at least two axes");
  return Composite("tril", {x}, Where(Le(DiagonalNumbers(x), k), x, false));
}

Tensor Triu(const Tensor& x, int64_t k) {
  if (!x.ok()) return x;
  if (x.rank() < 2) return Invalid("triu", x, "needs at least two axes");
  return Composite("triu", {x}, Where(Ge(DiagonalNumbers(x), k), x, false));
}

Tensor Unsqueeze(const Tensor& x, int64_t axis) {
  if (!x.ok()) return x;
  const absl::StatusOr<int> position = NormalizeAxis(axis, x.rank() + 1);
  if (!position.ok()) return Invalid("unsqueeze", x, position.status().message());
  return Composite("unsqueeze", {x}, Reshape(x, WithAxis(x.shape(), *position)));
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
  return Composite("squeeze", {x}, Reshape(x, shape));
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
  return Composite("flatten", {x}, Reshape(x, shape));
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
  return Composite("select", {x},
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
  return Composite("stack", {first}, Concat(parts, *position));
}

}  // namespace tensord
