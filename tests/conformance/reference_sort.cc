#include <algorithm>
#include <cmath>
#include <numeric>

#include "tensord/tests/conformance/reference_internal.h"

namespace tensord::conformance {
namespace {

// Returns whether element a of x precedes element b of y. NaN is greater than all numbers.
bool Precedes(const Values& x, int64_t a, const Values& y, int64_t b) {
  if (!x.floating()) return WholeLess(x.spec.dtype, x.whole[a], y.whole[b]);
  if (std::isnan(x.real[a]) || std::isnan(y.real[b])) {
    return !std::isnan(x.real[a]) && std::isnan(y.real[b]);
  }
  return x.real[a] < y.real[b];
}

// Returns the first k elements of each sorted row along an axis, and their indices.
std::vector<Values> SortAlong(const Values& x, int64_t axis, int64_t k, bool descending) {
  const Shape in = x.spec.shape.rank() == 0 ? Shape{1} : x.spec.shape;
  if (axis < 0) axis += in.rank();
  const int64_t n = in.dim(static_cast<int>(axis));
  Shape out = in;
  out.set_dim(static_cast<int>(axis), k);
  Values values = Values::Of(x.spec.dtype, out), indices = Values::Of(DType::kInt64, out);
  for (int64_t i = 0; i < values.size(); ++i) {
    Index index = Unravel(i, out);
    if (index[axis] != 0) continue;  // the row of an earlier element
    std::vector<int64_t> positions(n), order(n);
    for (int64_t at = 0; at < n; ++at) {
      index[axis] = at;
      positions[at] = Ravel(index, in);
    }
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
      return descending ? Precedes(x, positions[b], x, positions[a])
                        : Precedes(x, positions[a], x, positions[b]);
    });
    for (int64_t at = 0; at < k; ++at) {
      index[axis] = at;
      const int64_t to = Ravel(index, out);
      CopyElement(x, positions[order[at]], values, to);
      indices.whole[to] = order[at];
    }
  }
  if (x.spec.shape.rank() == 0) values.spec.shape = indices.spec.shape = Shape{};
  return {values, indices};
}

std::vector<Values> Sort(const Attributes& attrs, Inputs inputs) {
  const Values& x = inputs[0];
  const int rank = x.spec.shape.rank();
  const int64_t axis = Get<int64_t>(attrs, "axis", -1);
  const int64_t n =
      rank == 0 ? 1 : x.spec.shape.dim(static_cast<int>(axis < 0 ? axis + rank : axis));
  return SortAlong(x, axis, n, Get(attrs, "descending", false));
}

std::vector<Values> TopK(const Attributes& attrs, Inputs inputs) {
  return SortAlong(inputs[0], Get<int64_t>(attrs, "axis", -1), attrs.Int("k"),
                   Get(attrs, "largest", true));
}

// Counts, for each element, the elements of the sorted row that precede it, and with `right` also
// those that equal it.
Values SearchSorted(const Attributes& attrs, Inputs inputs) {
  const DType dtype = Promote(inputs[0].spec.dtype, inputs[1].spec.dtype);
  const Values sorted = Cast(inputs[0], dtype), x = Cast(inputs[1], dtype);
  const bool right = Get(attrs, "right", false);
  const Shape& shape = sorted.spec.shape;
  const int64_t n = shape.dim(shape.rank() - 1);
  Values out = Values::Of(DType::kInt64, x.spec.shape);
  for (int64_t i = 0; i < out.size(); ++i) {
    const int64_t row = shape.rank() == 1 ? 0 : i / x.spec.shape.dim(shape.rank() - 1);
    for (int64_t at = row * n; at < (row + 1) * n; ++at) {
      const bool before = right ? !Precedes(x, i, sorted, at) : Precedes(sorted, at, x, i);
      out.whole[i] += before ? 1 : 0;
    }
  }
  return out;
}

Values Nonzero(const Attributes& attrs, Inputs inputs) {
  const Values& x = inputs[0];
  const int64_t size = attrs.Int("size");
  const int rank = x.spec.shape.rank();
  Values out = Values::Of(DType::kInt64, {rank, size});
  int64_t column = 0;
  for (int64_t i = 0; i < x.size() && column < size; ++i) {
    if (x.floating() ? x.real[i] == 0 : x.whole[i] == 0) continue;
    const Index index = Unravel(i, x.spec.shape);
    for (int axis = 0; axis < rank; ++axis) out.whole[axis * size + column] = index[axis];
    ++column;
  }
  return out;
}

}  // namespace

void AddSortReferences(ReferenceTable& table) {
  table["sort"] = Sort;
  table["topk"] = TopK;
  table["searchsorted"] = SearchSorted;
  table["nonzero"] = Nonzero;
}

}  // namespace tensord::conformance
