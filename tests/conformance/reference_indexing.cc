#include <utility>

#include "tensord/tests/conformance/reference_internal.h"

namespace tensord::conformance {
namespace {

int64_t AxisOf(const Attributes& attrs, const Shape& shape) {
  const auto axis = Get<int64_t>(attrs, "axis", 0);
  return axis < 0 ? axis + shape.rank() : axis;
}

// Returns the index that an element of an index tensor means.
int64_t FromZero(int64_t index, int64_t size) { return index < 0 ? index + size : index; }

// Returns the position in x of which the element at `index` of x[i1, …, ik] is a copy.
Index SelectedPosition(const Values& x, Inputs indices, int64_t axis, const Shape& selected,
                       const Index& index) {
  Index at(index.begin(), index.begin() + axis);
  const Index within(index.begin() + axis, index.begin() + axis + selected.rank());
  for (const Values& tensor : indices) {
    const int64_t value = tensor.whole[RavelBroadcast(within, tensor.spec.shape)];
    at.push_back(FromZero(value, x.spec.shape.dim(static_cast<int>(at.size()))));
  }
  at.insert(at.end(), index.begin() + axis + selected.rank(), index.end());
  return at;
}

Values SelectIndices(const Attributes& attrs, Inputs inputs) {
  const Values& x = inputs[0];
  const Inputs indices = inputs.subspan(1);
  const int64_t axis = AxisOf(attrs, x.spec.shape);
  Shape selected;
  for (const Values& tensor : indices) selected = Broadcast(selected, tensor.spec.shape);
  Shape shape;
  for (int d = 0; d < axis; ++d) shape.AppendDim(x.spec.shape.dim(d));
  for (const int64_t dim : selected.dims()) shape.AppendDim(dim);
  for (int d = static_cast<int>(axis) + static_cast<int>(indices.size()); d < x.spec.shape.rank();
       ++d) {
    shape.AppendDim(x.spec.shape.dim(d));
  }
  Values out = Values::Of(x.spec.dtype, shape);
  for (int64_t i = 0; i < out.size(); ++i) {
    const Index at = SelectedPosition(x, indices, axis, selected, Unravel(i, shape));
    CopyElement(x, Ravel(at, x.spec.shape), out, i);
  }
  return out;
}

}  // namespace

void AddIndexingReferences(ReferenceTable& table) { table["index"] = SelectIndices; }

}  // namespace tensord::conformance
