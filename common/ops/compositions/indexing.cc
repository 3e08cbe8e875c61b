// Compositions that read and write elements at indices, and gradients of selections.
#include <algorithm>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tensord/common/ops/composition.h"
#include "tensord/common/ops/op_inference.h"
#include "tensord/common/ops/op_registry.h"

namespace tensord {
namespace formula {
namespace {

// Returns `shape` with another size along an axis.
Shape WithSize(Shape shape, int axis, int64_t size) {
  shape.set_dim(axis, size);
  return shape;
}

// Returns x with `values` at the indices along the first axis. `reduce` is as in the op.
Value IndexPut(const Value& x, const Value& indices, const Value& values, const char* reduce) {
  return Apply("index_put", {x, indices, values}, {{"reduce", std::string(reduce)}});
}

void TakeAlongDim(Formula& f) {
  const Value x = f.input(0), indices = f.input(1);
  const absl::StatusOr<int> axis = NormalizeAxis(f.attrs().Int("axis"), x.shape().rank());
  if (!axis.ok()) return f.Fail(axis.status().message());
  const Attributes along = {{"axis", int64_t{*axis}}};
  if (indices.shape().rank() != x.shape().rank()) {
    return f.Return(Apply("gather", {x, indices}, along));  // fails, and says why
  }
  const absl::StatusOr<Shape> others =
      BroadcastShapes(WithSize(x.shape(), *axis, 1), WithSize(indices.shape(), *axis, 1));
  if (!others.ok()) return f.Fail(others.status().message());
  const auto expanded = [&](const Value& value) {
    return BroadcastTo(value, WithSize(*others, *axis, value.shape().dim(*axis)));
  };
  f.Return(Apply("gather", {expanded(x), expanded(indices)}, along));
}

void OneHot(Formula& f) {
  const int64_t classes = f.attrs().Int("classes");
  if (classes < 1) return f.Fail("there must be at least one class");
  const Value indices = f.input(0);
  Shape shape = indices.shape(), column = indices.shape();
  shape.AppendDim(classes);
  column.AppendDim(1);
  const Value zeros = f.Full(0, shape, DType::kInt64), one = f.Full(1, {}, DType::kInt64);
  if (!f.ok()) return;
  f.Return(Apply("scatter", {zeros, Reshape(indices, column), one}, {{"axis", int64_t{-1}}}));
}

void EmbeddingBackward(Formula& f) {
  const Value gradient = f.input(0), indices = f.input(1);
  const int64_t rows = f.attrs().Int("rows");
  const std::vector<int64_t>& padding = f.attrs().Ints("padding_idx");
  if (gradient.shape().rank() != indices.shape().rank() + 1) {
    return f.Fail("the gradient must have the shape of the indices and a last dimension");
  }
  if (rows < 0) return f.Fail("the number of rows is negative");
  if (padding.size() > 1) return f.Fail("padding_idx has more than one index");
  const int64_t padded = padding.empty() ? 0 : padding[0] + (padding[0] < 0 ? rows : 0);
  if (!padding.empty() && (padded < 0 || padded >= rows)) {
    return f.Fail(
        absl::StrCat("padding_idx is ", padding[0], ", and the weight has ", rows, " rows"));
  }
  Value added = gradient;
  if (f.attrs().Bool("scale_grad_by_freq")) {
    const Value zeros = f.Full(0, {rows}, DType::kInt64), one = f.Full(1, {}, DType::kInt64);
    if (!f.ok()) return;
    const Value counts = IndexPut(zeros, indices, one, "add");
    Shape column = indices.shape();
    column.AppendDim(1);
    const DType wide = WideDType(gradient.dtype());
    const Value count = Reshape(Apply("index", {counts, indices}), column);
    added = gradient.To(wide) / count.To(wide);
  }
  const int64_t width = gradient.shape().dim(gradient.shape().rank() - 1);
  const Value zeros = f.Full(0, {rows, width}, added.dtype());
  if (!f.ok()) return;
  Value sums = IndexPut(zeros, indices, added, "add");
  if (!padding.empty() && width > 0) {
    const Value row = f.Full(0, {width}, sums.dtype());
    sums = AsStridedScatter(sums, row, {width}, {1}, padded * width);
  }
  f.Return(sums.To(gradient.dtype()));
}

// Returns x with `src` in place of the element `index` of an axis.
void ScatterSelected(Formula& f, const Value& x, const Value& src) {
  const Shape& shape = x.shape();
  const absl::StatusOr<int> axis = NormalizeAxis(f.attrs().Int("axis"), shape.rank());
  if (!axis.ok()) return f.Fail(axis.status().message());
  const int64_t index = f.attrs().Int("index"), size = shape.dim(*axis);
  if (index < -size || index >= size) {
    return f.Fail(absl::StrCat("index ", index, " is out of range for axis ", *axis));
  }
  Dims strides = RowMajorStrides(shape);
  const int64_t offset = (index < 0 ? index + size : index) * strides[*axis];
  strides.erase(strides.begin() + *axis);
  Shape without;
  for (int d = 0; d < shape.rank(); ++d) {
    if (d != *axis) without.AppendDim(shape.dim(d));
  }
  f.Return(AsStridedScatter(x, src, without, strides, offset));
}

// Returns x with `src` in place of x[start:stop:step] along an axis.
void ScatterSlice(Formula& f, const Value& x, const Value& src) {
  const Shape& shape = x.shape();
  const absl::StatusOr<int> axis = NormalizeAxis(f.attrs().Int("axis"), shape.rank());
  if (!axis.ok()) return f.Fail(axis.status().message());
  const int64_t step = f.attrs().Int("step"), size = shape.dim(*axis);
  if (step < 1) return f.Fail("the step must be 1 or more");
  const auto clamp = [size](int64_t i) {
    return std::clamp<int64_t>(i < 0 ? i + size : i, 0, size);
  };
  const int64_t start = clamp(f.attrs().Int("start"));
  const int64_t stop = std::max(start, clamp(f.attrs().Int("stop")));
  const int64_t count = stop == start ? 0 : (stop - start - 1) / step + 1;
  Dims strides = RowMajorStrides(shape);
  const int64_t offset = start * strides[*axis];
  // If the slice has at most one element, the step has no effect.
  if (count > 1) strides[*axis] *= step;
  f.Return(AsStridedScatter(x, src, WithSize(shape, *axis, count), strides, offset));
}

using Scatter = void (*)(Formula&, const Value&, const Value&);

template <Scatter kScatter>
void IntoInput(Formula& f) {
  kScatter(f, f.input(0), f.input(1));
}

// The gradient of the selection: scatters it into zeros of the shape in the attribute `shape`.
template <Scatter kScatter>
void IntoZeros(Formula& f) {
  const Shape shape(absl::MakeConstSpan(f.attrs().Ints("shape")));
  const Value zeros = f.Full(0, shape, f.input(0).dtype());
  if (f.ok()) kScatter(f, zeros, f.input(0));
}

void AppendIndexing(std::vector<OpSchema>& ops) {
  ops.push_back({.name = "take_along_dim",
                 .signature = "x, i -> (broadcast without the axis)",
                 .doc = "The same as gather, but x and the indices broadcast along the other axes.",
                 .min_inputs = 2,
                 .max_inputs = 2,
                 .attrs = {RequiredAttr("axis", AttrType::kInt,
                                        "the indexed axis; a negative one counts from the end")},
                 .takes_complex = true,
                 .input_names = {"x", "indices"},
                 .value_checked = true,
                 .formula = TakeAlongDim});
  ops.push_back({.name = "one_hot",
                 .signature = "(…) -> (…,classes)",
                 .doc = "For each index, a row of zeros with a one at this index, as int64.",
                 .min_inputs = 1,
                 .max_inputs = 1,
                 .attrs = {RequiredAttr("classes", AttrType::kInt, "the length of a row")},
                 .input_names = {"indices"},
                 .value_checked = true,
                 .formula = OneHot});
  ops.push_back(
      {.name = "embedding_backward",
       .signature = "(…,d), (…) -> (rows,d)",
       .doc =
           "The gradient of the weight of an embedding: for each row, the sum of the gradients at "
           "its indices, in order.",
       .min_inputs = 2,
       .max_inputs = 2,
       .attrs = {RequiredAttr("rows", AttrType::kInt, "the rows of the weight"),
                 OptionalAttr("padding_idx", AttrType::kInts, std::vector<int64_t>{},
                              "the index of the row whose gradient is 0, or nothing"),
                 OptionalAttr("scale_grad_by_freq", AttrType::kBool, false,
                              "divides each gradient by the count of its index")},
       .input_names = {"gradient", "indices"},
       .value_checked = true,
       .formula = EmbeddingBackward});
  const std::vector<AttrDef> element = {
      RequiredAttr("axis", AttrType::kInt, "a negative one counts from the end"),
      RequiredAttr("index", AttrType::kInt, "a negative one counts from the end")};
  const std::vector<AttrDef> slice = {
      OptionalAttr("axis", AttrType::kInt, int64_t{0}, "a negative one counts from the end"),
      OptionalAttr("start", AttrType::kInt, int64_t{0}, "as in Python"),
      OptionalAttr("stop", AttrType::kInt, std::numeric_limits<int64_t>::max(), "as in Python"),
      OptionalAttr("step", AttrType::kInt, int64_t{1}, "1 or more")};
  const auto add = [&ops](const char* name, const char* signature, const char* doc,
                          std::vector<std::string> input_names, std::vector<AttrDef> attrs,
                          void (*formula)(Formula&)) {
    const auto count = static_cast<int>(input_names.size());
    ops.push_back({.name = name,
                   .signature = signature,
                   .doc = doc,
                   .min_inputs = count,
                   .max_inputs = count,
                   .attrs = std::move(attrs),
                   .takes_complex = true,
                   .input_names = std::move(input_names),
                   .formula = formula});
  };
  const auto with_shape = [](std::vector<AttrDef> attrs) {
    attrs.insert(attrs.begin(), RequiredAttr("shape", AttrType::kInts, "the shape of x"));
    return attrs;
  };
  add("select_scatter", "x, (…) -> x.shape", "x with src in place of an element of an axis.",
      {"x", "src"}, element, IntoInput<ScatterSelected>);
  add("slice_scatter", "x, (…) -> x.shape",
      "x with src in place of x[start:stop:step] along an axis.", {"x", "src"}, slice,
      IntoInput<ScatterSlice>);
  add("select_backward", "(…) -> shape", "The gradient of x for an element of an axis.",
      {"gradient"}, with_shape(element), IntoZeros<ScatterSelected>);
  add("slice_backward", "(…) -> shape", "The gradient of x for x[start:stop:step] along an axis.",
      {"gradient"}, with_shape(slice), IntoZeros<ScatterSlice>);
}

}  // namespace
}  // namespace formula

void AppendIndexingCompositions(std::vector<OpSchema>& ops) { formula::AppendIndexing(ops); }

}  // namespace tensord
