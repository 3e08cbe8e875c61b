// References of the compositions that move, mask and scatter elements, by positions.
#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "tensord/tests/conformance/reference_internal.h"

namespace tensord::conformance {
namespace {

using Ints = std::vector<int64_t>;

Values Roll(const Attributes& attrs, Inputs inputs) {
  const Values& x = inputs[0];
  const Shape& shape = x.spec.shape;
  const Ints shifts = Get(attrs, "shift", Ints{}), axes = Get(attrs, "axes", Ints{});
  Values out = Values::Of(x.spec.dtype, shape);
  for (int64_t i = 0; i < x.size(); ++i) {
    if (axes.empty()) {
      const int64_t n = x.size();
      CopyElement(x, i, out, ((i + shifts[0]) % n + n) % n);
      continue;
    }
    Index to = Unravel(i, shape);
    for (size_t k = 0; k < axes.size(); ++k) {
      const auto axis = static_cast<int>(FromZero(axes[k], shape.rank()));
      const int64_t n = shape.dim(axis);
      to[axis] = ((to[axis] + shifts[k]) % n + n) % n;
    }
    CopyElement(x, i, out, Ravel(to, shape));
  }
  return out;
}

template <bool kLower>
Values Triangle(const Attributes& attrs, Inputs inputs) {
  const Values& x = inputs[0];
  const auto k = Get<int64_t>(attrs, "k", 0);
  Values out = Values::Of(x.spec.dtype, x.spec.shape);
  for (int64_t i = 0; i < x.size(); ++i) {
    const Index at = Unravel(i, x.spec.shape);
    const int64_t diagonal = at[at.size() - 1] - at[at.size() - 2];
    if (kLower ? diagonal <= k : diagonal >= k) CopyElement(x, i, out, i);
  }
  return out;
}

Values Pad(const Attributes& attrs, Inputs inputs) {
  const Values& x = inputs[0];
  const Ints pad = Get(attrs, "pad", Ints{});
  Shape shape = x.spec.shape;
  Ints before(shape.rank(), 0);
  for (size_t k = 0; k < pad.size(); k += 2) {
    const int axis = shape.rank() - 1 - static_cast<int>(k / 2);
    before[axis] = pad[k];
    shape.set_dim(axis, shape.dim(axis) + pad[k] + pad[k + 1]);
  }
  const double value = Get<double>(attrs, "value", 0);
  Values out = Values::Of(x.spec.dtype, shape);
  for (double& each : out.real) each = RoundTo(x.spec.dtype, value);
  for (int64_t& each : out.whole) each = static_cast<int64_t>(value);
  for (int64_t i = 0; i < x.size(); ++i) {
    Index to = Unravel(i, x.spec.shape);
    for (size_t d = 0; d < before.size(); ++d) to[d] += before[d];
    CopyElement(x, i, out, Ravel(to, shape));
  }
  return out;
}

Values TakeAlongDim(const Attributes& attrs, Inputs inputs) {
  const Values &x = inputs[0], &indices = inputs[1];
  const int axis = AxisOf(attrs, x.spec.shape);
  Shape shape;
  for (int d = 0; d < x.spec.shape.rank(); ++d) {
    const int64_t a = x.spec.shape.dim(d), b = indices.spec.shape.dim(d);
    shape.AppendDim(d == axis ? b : a == 1 ? b : a);
  }
  Values out = Values::Of(x.spec.dtype, shape);
  for (int64_t i = 0; i < out.size(); ++i) {
    Index at = Unravel(i, shape);
    const int64_t index = indices.whole[RavelBroadcast(at, indices.spec.shape)];
    at[axis] = FromZero(index, x.spec.shape.dim(axis));
    Index from = at;
    for (int d = 0; d < shape.rank(); ++d) {
      if (d != axis && x.spec.shape.dim(d) == 1) from[d] = 0;
    }
    CopyElement(x, Ravel(from, x.spec.shape), out, i);
  }
  return out;
}

Values OneHot(const Attributes& attrs, Inputs inputs) {
  const Values& indices = inputs[0];
  const auto classes = Get<int64_t>(attrs, "classes", 1);
  Shape shape = indices.spec.shape;
  shape.AppendDim(classes);
  Values out = Values::Of(DType::kInt64, shape);
  for (int64_t i = 0; i < indices.size(); ++i) {
    out.whole[i * classes + FromZero(indices.whole[i], classes)] = 1;
  }
  return out;
}

Values EmbeddingBackward(const Attributes& attrs, Inputs inputs) {
  const Values &gradient = inputs[0], &indices = inputs[1];
  const auto rows = Get<int64_t>(attrs, "rows", 0);
  const Ints padding = Get(attrs, "padding_idx", Ints{});
  const Shape& shape = gradient.spec.shape;
  const int64_t width = shape.dim(shape.rank() - 1);
  std::vector<double> counts(rows, 0);
  for (const int64_t index : indices.whole) ++counts[FromZero(index, rows)];
  Values out = ScaledValues(gradient.spec.dtype, {rows, width});
  for (int64_t i = 0; i < indices.size(); ++i) {
    const int64_t row = FromZero(indices.whole[i], rows);
    if (!padding.empty() && row == FromZero(padding[0], rows)) continue;
    const double divisor = Get(attrs, "scale_grad_by_freq", false) ? counts[row] : 1;
    for (int64_t k = 0; k < width; ++k) {
      const double added = gradient.real[i * width + k] / divisor;
      out.real[row * width + k] += added;
      out.scale[row * width + k] += std::fabs(added);
    }
  }
  return out;
}

// Copies `src` to the elements start, start + step, … of an axis of `out`. If `drops_axis`, `src`
// lacks the axis.
void ScatterInto(Values& out, const Values& src, int axis, int64_t start, int64_t step,
                 bool drops_axis) {
  for (int64_t i = 0; i < src.size(); ++i) {
    Index to = Unravel(i, src.spec.shape);
    if (drops_axis) {
      to.insert(to.begin() + axis, start);
    } else {
      to[axis] = start + to[axis] * step;
    }
    CopyElement(src, i, out, Ravel(to, out.spec.shape));
  }
}

void ScatterSelected(const Attributes& attrs, const Values& src, Values& out) {
  const int axis = AxisOf(attrs, out.spec.shape);
  const int64_t index = FromZero(Get<int64_t>(attrs, "index", 0), out.spec.shape.dim(axis));
  ScatterInto(out, src, axis, index, 1, true);
}

void ScatterSlice(const Attributes& attrs, const Values& src, Values& out) {
  const int axis = AxisOf(attrs, out.spec.shape);
  const int64_t start = FromZero(Get<int64_t>(attrs, "start", 0), out.spec.shape.dim(axis));
  ScatterInto(out, src, axis, std::max<int64_t>(start, 0), Get<int64_t>(attrs, "step", 1), false);
}

template <void (*kScatter)(const Attributes&, const Values&, Values&)>
Values IntoInput(const Attributes& attrs, Inputs inputs) {
  Values out = inputs[0];
  kScatter(attrs, inputs[1], out);
  return out;
}

template <void (*kScatter)(const Attributes&, const Values&, Values&)>
Values IntoZeros(const Attributes& attrs, Inputs inputs) {
  const Ints shape = Get(attrs, "shape", Ints{});
  Values out = Values::Of(inputs[0].spec.dtype, Shape(absl::MakeConstSpan(shape)));
  kScatter(attrs, inputs[0], out);
  return out;
}

}  // namespace

void AddMovementReferences(ReferenceTable& table) {
  table["roll"] = Roll;
  table["tril"] = Triangle<true>;
  table["triu"] = Triangle<false>;
  table["pad"] = Pad;
  table["take_along_dim"] = TakeAlongDim;
  table["one_hot"] = OneHot;
  table["embedding_backward"] = EmbeddingBackward;
  table["select_scatter"] = IntoInput<ScatterSelected>;
  table["slice_scatter"] = IntoInput<ScatterSlice>;
  table["select_backward"] = IntoZeros<ScatterSelected>;
  table["slice_backward"] = IntoZeros<ScatterSlice>;
}

}  // namespace tensord::conformance
