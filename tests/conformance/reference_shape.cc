#include <algorithm>
#include <utility>

#include "tensord/tests/conformance/reference_internal.h"

namespace tensord::conformance {
namespace {

Values Reshape(const Attributes& attrs, Inputs inputs) {
  Values out = inputs[0];
  std::vector<int64_t> dims = attrs.Ints("shape");
  int64_t known = 1;
  for (int64_t dim : dims) known *= dim == -1 ? 1 : dim;
  for (int64_t& dim : dims) {
    if (dim == -1) dim = out.size() / known;
  }
  out.spec.shape = Shape(dims);
  return out;
}

Values Permute(const Attributes& attrs, Inputs inputs) {
  const Values& x = inputs[0];
  const int rank = x.spec.shape.rank();
  std::vector<int64_t> axes = attrs.Ints("axes");
  Shape shape;
  for (int64_t& axis : axes) {
    if (axis < 0) axis += rank;
    shape.AppendDim(x.spec.shape.dim(axis));
  }
  Values out = Values::Of(x.spec.dtype, shape);
  for (int64_t i = 0; i < out.size(); ++i) {
    const Index index = Unravel(i, shape);
    Index from(rank);
    for (int axis = 0; axis < rank; ++axis) from[axes[axis]] = index[axis];
    CopyElement(x, Ravel(from, x.spec.shape), out, i);
  }
  return out;
}

// Returns Python's slice(start, stop, step).indices(size), found one index at a time.
struct Range {
  int64_t start;
  int64_t step;
  int64_t count;
};
Range PythonSlice(int64_t start, int64_t stop, int64_t step, int64_t size) {
  const int64_t lowest = step < 0 ? -1 : 0, highest = step < 0 ? size - 1 : size;
  const auto clamp = [&](int64_t position) {
    if (position < 0) return position < -size ? lowest : std::max(position + size, lowest);
    return std::min(position, highest);
  };
  start = clamp(start);
  stop = clamp(stop);
  step = std::clamp(step, -size - 1, size + 1);
  Range range = {start, step, 0};
  for (int64_t i = start; step < 0 ? i > stop : i < stop; i += step) ++range.count;
  return range;
}

Values Slice(const Attributes& attrs, Inputs inputs) {
  const Values& x = inputs[0];
  const int rank = x.spec.shape.rank();
  const std::vector<int64_t>& starts = attrs.Ints("starts");
  const std::vector<int64_t>& stops = attrs.Ints("stops");
  const auto axes = Get<std::vector<int64_t>>(attrs, "axes", {});
  const auto steps = Get<std::vector<int64_t>>(attrs, "steps", {});
  std::vector<Range> ranges;
  for (int axis = 0; axis < rank; ++axis) ranges.push_back({0, 1, x.spec.shape.dim(axis)});
  for (size_t k = 0; k < starts.size(); ++k) {
    int64_t axis = axes.empty() ? static_cast<int64_t>(k) : axes[k];
    if (axis < 0) axis += rank;
    ranges[axis] =
        PythonSlice(starts[k], stops[k], steps.empty() ? 1 : steps[k], x.spec.shape.dim(axis));
  }
  Shape shape;
  for (const Range& range : ranges) shape.AppendDim(range.count);
  Values out = Values::Of(x.spec.dtype, shape);
  for (int64_t i = 0; i < out.size(); ++i) {
    Index index = Unravel(i, shape);
    for (int axis = 0; axis < rank; ++axis) {
      index[axis] = ranges[axis].start + index[axis] * ranges[axis].step;
    }
    CopyElement(x, Ravel(index, x.spec.shape), out, i);
  }
  return out;
}

Values Concat(const Attributes& attrs, Inputs inputs) {
  const int rank = inputs[0].spec.shape.rank();
  int64_t axis = Get<int64_t>(attrs, "axis", 0);
  if (axis < 0) axis += rank;
  DType dtype = inputs[0].spec.dtype;
  Shape shape = inputs[0].spec.shape;
  shape.set_dim(axis, 0);
  for (const Values& input : inputs) {
    dtype = Promote(dtype, input.spec.dtype);
    shape.set_dim(axis, shape.dim(axis) + input.spec.shape.dim(axis));
  }
  Values out = Values::Of(dtype, shape);
  int64_t offset = 0;
  for (const Values& input : inputs) {
    const Values x = Cast(input, dtype);
    for (int64_t i = 0; i < x.size(); ++i) {
      Index index = Unravel(i, x.spec.shape);
      index[axis] += offset;
      CopyElement(x, i, out, Ravel(index, shape));
    }
    offset += x.spec.shape.dim(axis);
  }
  return out;
}

Values BroadcastTo(const Attributes& attrs, Inputs inputs) {
  Values out = Values::Of(inputs[0].spec.dtype, Shape(attrs.Ints("shape")));
  for (int64_t i = 0; i < out.size(); ++i) {
    const Index index = Unravel(i, out.spec.shape);
    CopyElement(inputs[0], RavelBroadcast(index, inputs[0].spec.shape), out, i);
  }
  return out;
}

}  // namespace

void AddShapeReferences(ReferenceTable& table) {
  table["reshape"] = Reshape;
  table["permute"] = Permute;
  table["slice"] = Slice;
  table["concat"] = Concat;
  table["broadcast_to"] = BroadcastTo;
}

}  // namespace tensord::conformance
