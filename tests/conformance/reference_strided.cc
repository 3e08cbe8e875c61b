#include <utility>

#include "tensord/tests/conformance/reference_internal.h"

namespace tensord::conformance {
namespace {

// Returns the flat position in x of element `i` of the view.
int64_t PlaceOf(const Attributes& attrs, const Shape& shape, int64_t i) {
  const Index index = Unravel(i, shape);
  int64_t place = Get<int64_t>(attrs, "offset", 0);
  for (int axis = 0; axis < shape.rank(); ++axis) {
    if (index[axis] > 0) place += index[axis] * attrs.Ints("strides")[axis];
  }
  return place;
}

Values AsStrided(const Attributes& attrs, Inputs inputs) {
  Values out = Values::Of(inputs[0].spec.dtype, Shape(attrs.Ints("shape")));
  for (int64_t i = 0; i < out.size(); ++i) {
    CopyElement(inputs[0], PlaceOf(attrs, out.spec.shape, i), out, i);
  }
  return out;
}

Values AsStridedScatter(const Attributes& attrs, Inputs inputs) {
  Values out = inputs[0];
  const Values& values = inputs[1];
  for (int64_t i = 0; i < values.size(); ++i) {
    CopyElement(values, i, out, PlaceOf(attrs, values.spec.shape, i));
  }
  return out;
}

Values Bitcast(const Attributes& attrs, Inputs inputs) {
  HostTensor bytes = Narrow(inputs[0]);
  const DType dtype = attrs.Type("dtype");
  const int last = bytes.spec.shape.rank() - 1;
  if (last >= 0) {
    const int64_t size = bytes.spec.shape.dim(last) * SizeOf(bytes.spec.dtype);
    bytes.spec.shape.set_dim(last, size / SizeOf(dtype));
  }
  bytes.spec.dtype = dtype;
  return Widen(bytes);
}

}  // namespace

void AddStridedReferences(ReferenceTable& table) {
  table["as_strided"] = AsStrided;
  table["as_strided_scatter"] = AsStridedScatter;
  table["bitcast"] = Bitcast;
}

}  // namespace tensord::conformance
