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

}  // namespace tensord
