#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "tensord/tests/conformance/reference_internal.h"

namespace tensord::conformance {
namespace {

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

// Returns the shape of x[:axis] + selected + x[axis + count:].
Shape SelectedShape(const Shape& x, const Shape& selected, int64_t axis, size_t count) {
  Shape shape;
  for (int d = 0; d < axis; ++d) shape.AppendDim(x.dim(d));
  for (const int64_t dim : selected.dims()) shape.AppendDim(dim);
  for (int d = static_cast<int>(axis) + static_cast<int>(count); d < x.rank(); ++d) {
    shape.AppendDim(x.dim(d));
  }
  return shape;
}

Values SelectIndices(const Attributes& attrs, Inputs inputs) {
  const Values& x = inputs[0];
  const Inputs indices = inputs.subspan(1);
  const int64_t axis = AxisOf(attrs, x.spec.shape);
  Shape selected;
  for (const Values& tensor : indices) selected = Broadcast(selected, tensor.spec.shape);
  const Shape shape = SelectedShape(x.spec.shape, selected, axis, indices.size());
  Values out = Values::Of(x.spec.dtype, shape);
  for (int64_t i = 0; i < out.size(); ++i) {
    const Index at = SelectedPosition(x, indices, axis, selected, Unravel(i, shape));
    CopyElement(x, Ravel(at, x.spec.shape), out, i);
  }
  return out;
}

Values Gather(const Attributes& attrs, Inputs inputs) {
  const Values& x = inputs[0];
  const Values& indices = inputs[1];
  const int64_t axis = AxisOf(attrs, x.spec.shape);
  Values out = Values::Of(x.spec.dtype, indices.spec.shape);
  for (int64_t i = 0; i < out.size(); ++i) {
    Index at = Unravel(i, indices.spec.shape);
    if (!at.empty())
      at[axis] = FromZero(indices.whole[i], x.spec.shape.dim(static_cast<int>(axis)));
    CopyElement(x, Ravel(at, x.spec.shape), out, i);
  }
  return out;
}

// Combines tensors element by element. Sums and products of 16-bit floats are rounded at the end
// only, because the table rounds the reference.
class Updater {
 public:
  Updater(const Values& x, std::string reduce) : reduce_(std::move(reduce)), out_(x) {
    out_.scale.clear();
    for (const double value : x.real) out_.scale.push_back(std::fabs(value));
  }

  void Update(int64_t at, const Values& values, int64_t from) {
    if (!out_.floating()) {
      int64_t& element = out_.whole[at];
      element = Whole(element, values.whole[from]);
      return;
    }
    if (IsComplex(out_.spec.dtype)) {  // the op only replaces them
      CopyElement(values, from, out_, at);
      return;
    }
    double& element = out_.real[at];
    const double value = values.real[from];
    out_.scale[at] =
        reduce_ == "mul" ? out_.scale[at] * std::fabs(value) : out_.scale[at] + std::fabs(value);
    element = Real(element, value);
  }

  Values Result() && {
    if (reduce_ != "add" && reduce_ != "mul") out_.scale.clear();
    return std::move(out_);
  }

 private:
  int64_t Whole(int64_t a, int64_t b) const {
    if (reduce_ == "none") return b;
    if (reduce_ == "max") return WholeLess(out_.spec.dtype, a, b) ? b : a;
    if (reduce_ == "min") return WholeLess(out_.spec.dtype, b, a) ? b : a;
    if (IsBool(out_.spec.dtype)) return reduce_ == "add" ? a | b : a & b;
    const auto x = static_cast<uint64_t>(a), y = static_cast<uint64_t>(b);
    return WrapTo(out_.spec.dtype, static_cast<int64_t>(reduce_ == "add" ? x + y : x * y));
  }

  double Real(double a, double b) const {
    if (reduce_ == "none") return b;
    if (reduce_ == "add") return a + b;
    if (reduce_ == "mul") return a * b;
    if (std::isnan(a) || std::isnan(b)) return std::nan("");
    return reduce_ == "max" ? std::max(a, b) : std::min(a, b);
  }

  const std::string reduce_;
  Values out_;
};

std::string ReduceOf(const Attributes& attrs) { return Get<std::string>(attrs, "reduce", "none"); }

Values IndexPut(const Attributes& attrs, Inputs inputs) {
  const Values& x = inputs[0];
  const Values& values = inputs.back();
  const Inputs indices = inputs.subspan(1, inputs.size() - 2);
  const int64_t axis = AxisOf(attrs, x.spec.shape);
  Shape selected;
  for (const Values& tensor : indices) selected = Broadcast(selected, tensor.spec.shape);
  const Shape shape = SelectedShape(x.spec.shape, selected, axis, indices.size());
  Updater updater(x, ReduceOf(attrs));
  const int64_t n = shape.num_elements();
  for (int64_t i = 0; i < n; ++i) {
    const Index at = SelectedPosition(x, indices, axis, selected, Unravel(i, shape));
    updater.Update(Ravel(at, x.spec.shape), values, values.spec.shape.rank() == 0 ? 0 : i);
  }
  return std::move(updater).Result();
}

Values Scatter(const Attributes& attrs, Inputs inputs) {
  const Values& x = inputs[0];
  const Values& indices = inputs[1];
  const Values& values = inputs[2];
  const int64_t axis = AxisOf(attrs, x.spec.shape);
  Updater updater(x, ReduceOf(attrs));
  for (int64_t i = 0; i < indices.size(); ++i) {
    Index at = Unravel(i, indices.spec.shape);
    const int64_t from = values.spec.shape.rank() == 0 ? 0 : Ravel(at, values.spec.shape);
    if (!at.empty())
      at[axis] = FromZero(indices.whole[i], x.spec.shape.dim(static_cast<int>(axis)));
    updater.Update(Ravel(at, x.spec.shape), values, from);
  }
  return std::move(updater).Result();
}

}  // namespace

void AddIndexingReferences(ReferenceTable& table) {
  table["index"] = SelectIndices;
  table["gather"] = Gather;
  table["index_put"] = IndexPut;
  table["scatter"] = Scatter;
}

}  // namespace tensord::conformance
