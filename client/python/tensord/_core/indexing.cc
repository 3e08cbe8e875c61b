// x[key] and x[key] = value.
//
// A key is read in two steps. The basic part (ints, slices, None, ...) selects a box of x: a shape,
// strides and an offset into its elements. The arrays then select along axes of this box. As in
// PyTorch, an int is a basic part also where it stands beside arrays.
#include "tensord/client/indexing.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tensord/client/creation.h"
#include "tensord/client/python/tensord/_core/core.h"
#include "tensord/client/sorting.h"

namespace tensord::python {
namespace {

// What a key selects along one axis of x.
struct Range {
  int64_t start = 0, step = 1, count = 0;
};

struct Key {
  std::vector<Range> ranges;                   // for each axis of x
  std::vector<bool> kept;                      // for each axis of x: false if an int removes it
  std::vector<int> order;                      // axes of the box: an axis of x, or -1 for a new one
  std::vector<std::pair<int, Tensor>> arrays;  // an axis of the box, and the indices into it
  bool whole = true;                           // the ranges select all of x, in order

  std::vector<int64_t> dims() const {
    std::vector<int64_t> shape;
    for (const int axis : order) shape.push_back(axis < 0 ? 1 : ranges[axis].count);
    return shape;
  }
};

absl::Span<const int64_t> Span(const std::vector<int64_t>& values) { return values; }

// Returns the elements of a mask that are true as one index tensor for each of its axes. Waits for
// their number.
std::vector<Tensor> IndicesOf(const Tensor& mask) {
  const Tensor count = CountNonzero(mask);
  const int64_t size = Unwrap(Interruptible([&] { return count.Item<int64_t>(); }));
  const Tensor indices = NonZero(mask, size);
  std::vector<Tensor> rows;
  for (int i = 0; i < mask.rank(); ++i) rows.push_back(indices[i]);
  return rows;
}

// A key that is an array: a Tensor, or a list or an object that asarray() takes.
bool IsArray(PyObject* part) {
  return TensorOrNull(part) != nullptr || PyList_Check(part) || PyObject_CheckBuffer(part) ||
         PyObject_HasAttrString(part, "__array__") == 1;
}

[[noreturn]] void RaiseIndexError(const std::string& message) {
  PyErr_SetString(PyExc_IndexError, message.c_str());
  throw nb::python_error();
}

class KeyReader {
 public:
  KeyReader(const Tensor& x, PyObject* key) : x_(x) {
    if (PyTuple_Check(key)) {
      for (Py_ssize_t i = 0; i < PyTuple_Size(key); ++i) parts_.push_back(PyTuple_GetItem(key, i));
    } else {
      parts_.push_back(key);
    }
  }

  Key Read() {
    int64_t used = 0, ellipses = 0;
    for (PyObject* part : parts_) {
      ellipses += part == Py_Ellipsis;
      used += AxesOf(part);
    }
    if (ellipses > 1) RaiseIndexError("an index can have only one ellipsis (...)");
    if (used > x_.rank()) {
      RaiseIndexError(
          absl::StrCat("too many indices: ", used, " for a tensor of ", x_.rank(), " axes"));
    }
    const int rest = x_.rank() - static_cast<int>(used);
    for (PyObject* part : parts_) {
      if (part == Py_Ellipsis) {
        for (int i = 0; i < rest; ++i) AddWhole();
      } else {
        Add(part);
      }
    }
    while (static_cast<int>(key_.ranges.size()) < x_.rank()) AddWhole();
    return std::move(key_);
  }

 private:
  // Returns how many axes of x the part takes.
  int64_t AxesOf(PyObject* part) {
    if (part == Py_None || part == Py_Ellipsis || PyBool_Check(part)) return 0;
    if (PySlice_Check(part)) return 1;
    if (const Tensor* tensor = Array(part)) return IsBool(tensor->dtype()) ? tensor->rank() : 1;
    return 1;
  }

  // Returns the array of a part, which is made at the first call; null if the part is none.
  const Tensor* Array(PyObject* part) {
    if (const Tensor* tensor = TensorOrNull(part)) return tensor;
    if (PyIndex_Check(part) && PySequence_Check(part) == 0) return nullptr;  // an int of NumPy
    if (!IsArray(part)) return nullptr;
    for (const auto& [known, tensor] : made_) {
      if (known == part) return &tensor;
    }
    Tensor tensor = FromPython(part, DType::kUnspecified, x_.device());
    // An empty list has no dtype of its own.
    if (tensor.num_elements() == 0 && PyList_Check(part)) tensor = tensor.To(DType::kInt64);
    made_.emplace_back(part, std::move(tensor));
    return &made_.back().second;
  }

  int64_t AxisSize() const { return x_.shape().dim(static_cast<int>(key_.ranges.size())); }
  void AddRange(Range range) {
    if (range.count == 0) range = {};  // Python's start may be outside the axis
    key_.order.push_back(static_cast<int>(key_.ranges.size()));
    key_.whole = key_.whole && range.start == 0 && range.step == 1 && range.count == AxisSize();
    key_.ranges.push_back(range);
    key_.kept.push_back(true);
  }
  void AddWhole() { AddRange({0, 1, AxisSize()}); }

  void AddInt(int64_t index) {
    const int64_t size = AxisSize();
    if (index < -size || index >= size) {
      RaiseIndexError(absl::StrCat("index ", index, " is out of range for axis ",
                                   key_.ranges.size(), " of size ", size));
    }
    key_.ranges.push_back({index < 0 ? index + size : index, 1, 1});
    key_.kept.push_back(false);
    key_.whole = key_.whole && size == 1;
  }

  void AddArray(const Tensor& indices) {
    key_.arrays.emplace_back(static_cast<int>(key_.order.size()), indices);
    AddWhole();
  }

  void Add(PyObject* part) {
    if (part == Py_None) {
      key_.order.push_back(-1);
    } else if (PySlice_Check(part)) {
      Py_ssize_t start = 0, stop = 0, step = 0;
      if (PySlice_Unpack(part, &start, &stop, &step) < 0) throw nb::python_error();
      const Py_ssize_t count = PySlice_AdjustIndices(AxisSize(), &start, &stop, step);
      AddRange({start, step, count});
    } else if (PyBool_Check(part)) {
      // x[True] has a new axis of size 1, x[False] one of size 0.
      const int64_t size = part == Py_True ? 1 : 0;
      key_.arrays.emplace_back(static_cast<int>(key_.order.size()),
                               Zeros(x_.device(), {size}, {DType::kInt64}));
      key_.order.push_back(-1);
    } else if (const Tensor* tensor = Array(part)) {
      AddTensor(*tensor);
    } else if (PyIndex_Check(part)) {
      AddInt(ReadInt(part, "an index"));
    } else {
      RaiseTypeError(absl::StrCat(
          "an index must be an int, a slice, ..., None, or an array of ints or bools, not ",
          TypeName(part)));
    }
  }

  void AddTensor(const Tensor& tensor) {
    if (!IsBool(tensor.dtype())) {
      if (!IsInteger(tensor.dtype())) {
        RaiseIndexError(absl::StrCat("an index array must have an integer dtype or bool, not ",
                                     DTypeName(tensor.dtype())));
      }
      const bool direct = tensor.dtype() == DType::kInt32 || tensor.dtype() == DType::kInt64;
      return AddArray(direct ? tensor : tensor.To(DType::kInt64));
    }
    for (int i = 0; i < tensor.rank(); ++i) {
      const int axis = static_cast<int>(key_.ranges.size()) + i;
      // As in NumPy, a mask without elements selects nothing from an axis of any size.
      if (tensor.shape().dim(i) != 0 && tensor.shape().dim(i) != x_.shape().dim(axis)) {
        RaiseIndexError(absl::StrCat("the mask has shape ", tensor.shape().ToString(),
                                     ", and axis ", axis, " of the tensor has size ",
                                     x_.shape().dim(axis)));
      }
    }
    if (tensor.rank() == 0) {
      const bool value = Unwrap(Interruptible([&] { return tensor.Item<bool>(); }));
      return Add(value ? Py_True : Py_False);
    }
    for (const Tensor& indices : IndicesOf(tensor)) AddArray(indices);
  }

  const Tensor& x_;
  std::vector<PyObject*> parts_;
  std::vector<std::pair<PyObject*, Tensor>> made_;
  Key key_;
};

// Returns the box of x that the basic part of the key selects.
Tensor SelectBox(const Tensor& x, const Key& key) {
  Tensor box = x;
  if (!key.whole) {
    std::vector<int64_t> starts, stops, steps;
    for (const Range& range : key.ranges) {
      const int64_t stop = range.start + range.count * range.step;
      starts.push_back(range.start);
      stops.push_back(stop < 0 ? kToBegin : stop);
      steps.push_back(range.step);
    }
    box = Slice(x, starts, stops, {.steps = steps});
  }
  const std::vector<int64_t> shape = key.dims();
  if (box.shape().dims() != Span(shape)) box = Reshape(box, Shape(Span(shape)));
  return box;
}

// Returns the arrays, in the order of their axes.
std::vector<Tensor> Indices(const Key& key) {
  std::vector<Tensor> indices;
  for (const auto& [axis, tensor] : key.arrays) indices.push_back(tensor);
  return indices;
}

// Returns the shape to which the arrays broadcast. If there is none, raises IndexError.
Shape CommonShape(const Key& key) {
  absl::StatusOr<Shape> common = Shape();
  for (const auto& [axis, tensor] : key.arrays) {
    if (common.ok()) common = BroadcastShapes(*common, tensor.shape());
  }
  if (!common.ok()) RaiseIndexError(absl::StrCat("the index arrays: ", common.status().message()));
  return *std::move(common);
}

bool Adjacent(const Key& key) {
  for (size_t i = 1; i < key.arrays.size(); ++i) {
    if (key.arrays[i].first != key.arrays[i - 1].first + 1) return false;
  }
  return true;
}

Tensor Select(const Tensor& x, const Key& key) {
  const Tensor box = SelectBox(x, key);
  if (key.arrays.empty()) return box;
  CommonShape(key);
  if (Adjacent(key)) return Index(box, Indices(key), key.arrays[0].first);
  // The axes of the arrays come first, as in NumPy.
  std::vector<int64_t> axes;
  for (const auto& [axis, tensor] : key.arrays) axes.push_back(axis);
  for (int64_t axis = 0; axis < box.rank(); ++axis) {
    if (std::find(axes.begin(), axes.begin() + static_cast<std::ptrdiff_t>(key.arrays.size()),
                  axis) == axes.begin() + static_cast<std::ptrdiff_t>(key.arrays.size())) {
      axes.push_back(axis);
    }
  }
  return Index(Permute(box, axes), Indices(key), 0);
}

// Returns the value as a tensor of x's dtype and device.
Tensor ReadValue(const Tensor& x, PyObject* value) {
  Scalar scalar = false;
  if (const Tensor* tensor = TensorOrNull(value)) return tensor->To(x.dtype());
  if (ReadScalar(value, &scalar)) return Full(x.device(), {}, scalar, {.dtype = x.dtype()});
  return FromPython(value, x.dtype(), x.device());
}

// Returns `value` with this shape. As in NumPy, leading axes of size 1 are dropped.
Tensor Broadcast(Tensor value, absl::Span<const int64_t> shape) {
  if (value.rank() > static_cast<int>(shape.size())) {
    int extra = value.rank() - static_cast<int>(shape.size());
    const auto dims = value.shape().dims();
    if (std::all_of(dims.begin(), dims.begin() + extra, [](int64_t dim) { return dim == 1; })) {
      value = Reshape(value, Shape(dims.subspan(extra)));
    }
  }
  return value.shape().dims() == shape ? value : BroadcastTo(value, Shape(shape));
}

Tensor SetBox(const Box& box, const Key& key, const Tensor& value) {
  const Tensor& x = box.value;
  const std::vector<int64_t> shape = key.dims();
  if (key.whole) return Reshape(Broadcast(value, shape), x.shape());
  const Dims strides = RowMajorStrides(x.shape());
  std::vector<int64_t> steps;
  int64_t offset = 0;
  for (int i = 0; i < x.rank(); ++i) offset += key.ranges[i].start * strides[i];
  for (const int axis : key.order)
    steps.push_back(axis < 0 ? 0 : strides[axis] * key.ranges[axis].step);
  const Tensor src = Broadcast(value, shape);
  if (src.ok() && src.num_elements() == 0) return x;
  return AsStridedScatter(x, src, Shape(Span(shape)), steps,
                          {.offset = offset, .donate = MayDonate(box)});
}

Tensor SetArrays(const Box& box, const Key& key, const Tensor& value) {
  const Tensor& x = box.value;
  if (key.whole && key.order.size() == key.ranges.size() && Adjacent(key)) {
    const std::vector<Tensor> indices = Indices(key);
    const int axis = key.arrays[0].first;
    // The shape of x[key], which needs no op.
    const Shape common = CommonShape(key);
    std::vector<int64_t> shape(x.shape().dims().begin(), x.shape().dims().begin() + axis);
    shape.insert(shape.end(), common.dims().begin(), common.dims().end());
    shape.insert(shape.end(),
                 x.shape().dims().begin() + axis + static_cast<std::ptrdiff_t>(indices.size()),
                 x.shape().dims().end());
    return IndexPut(x, indices, value.rank() == 0 ? value : Broadcast(value, shape),
                    {.axis = axis, .donate = MayDonate(box)});
  }
  // Any other key: selects the positions in the flattened x, and writes there.
  const Tensor positions = Select(Reshape(Arange(x.device(), x.num_elements()), x.shape()), key);
  if (!positions.ok()) return positions;
  const Tensor flat = Reshape(x, {x.num_elements()});
  const Tensor index = Reshape(positions, {positions.num_elements()});
  const Tensor values = value.rank() == 0
                            ? value
                            : Reshape(Broadcast(value, positions.shape().dims()), index.shape());
  return Reshape(IndexPut(flat, {index}, values), x.shape());
}

// x[mask] = value with one value, or a mask of x's shape: needs no number of elements, so doesn't
// wait. Returns nullopt for any other key.
std::optional<Tensor> SetMask(const Tensor& x, PyObject* key, const Tensor& value) {
  const Tensor* const mask = TensorOrNull(key);
  if (mask == nullptr || !IsBool(mask->dtype()) || value.rank() != 0 || mask->rank() > x.rank() ||
      mask->rank() == 0) {
    return std::nullopt;
  }
  std::vector<int64_t> shape(mask->shape().dims().begin(), mask->shape().dims().end());
  if (!std::equal(shape.begin(), shape.end(), x.shape().dims().begin())) return std::nullopt;
  shape.resize(x.rank(), 1);
  return Where(Reshape(*mask, Shape(Span(shape))), value, x);
}

}  // namespace

nb::object GetItem(const Tensor& x, PyObject* key) {
  if (PyLong_CheckExact(key) && x.rank() > 0) {
    const int64_t index = ReadInt(key, "an index"), size = x.shape().dim(0);
    if (index >= -size && index < size) return Wrap(x[index]);
  }
  const Tensor kept = x;  // another thread may assign to the box while this one waits
  return Wrap(Select(kept, KeyReader(kept, key).Read()));
}

void SetItem(Box& box, PyObject* key, PyObject* value) {
  const Tensor source = ReadValue(box.value, value);
  if (!source.ok()) Raise(source.status());
  std::optional<Tensor> result = SetMask(box.value, key, source);
  if (!result.has_value()) {
    const Key read = [&] {
      const Tensor x = box.value;
      return KeyReader(x, key).Read();
    }();
    result = read.arrays.empty() ? SetBox(box, read, source) : SetArrays(box, read, source);
  }
  if (!result->ok()) Raise(result->status());
  Assign(box, *std::move(result));
}

}  // namespace tensord::python
