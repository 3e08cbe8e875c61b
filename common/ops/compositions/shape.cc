// Compositions that move and mask elements, and linspace.
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tensord/common/ops/composition.h"
#include "tensord/common/ops/op_inference.h"
#include "tensord/common/ops/op_registry.h"

namespace tensord {
namespace formula {
namespace {

// Moves the elements along an axis by `shift` positions.
Value Rolled(const Value& x, int64_t shift, int64_t axis) {
  const int64_t size = x.shape().dim(static_cast<int>(axis));
  if (size == 0 || shift % size == 0) return x;
  const int64_t first = (size - shift % size) % size;  // this element comes first
  return Concat({Slice(x, axis, first, size), Slice(x, axis, 0, first)}, axis);
}

void Roll(Formula& f) {
  const std::vector<int64_t>& shifts = f.attrs().Ints("shift");
  const std::vector<int64_t>& axes = f.attrs().Ints("axes");
  Value x = f.input(0);
  const Shape shape = x.shape();
  if (axes.empty() && shifts.size() == 1) {
    const Value flat = Reshape(x, {shape.num_elements()});
    return f.Return(Reshape(Rolled(flat, shifts[0], 0), shape));
  }
  if (axes.size() != shifts.size()) {
    return f.Fail(absl::StrCat("there are ", shifts.size(), " shifts and ", axes.size(), " axes"));
  }
  for (size_t i = 0; i < axes.size(); ++i) {
    const absl::StatusOr<int> axis = NormalizeAxis(axes[i], shape.rank());
    if (!axis.ok()) return f.Fail(axis.status().message());
    x = Rolled(x, shifts[i], *axis);
    if (!f.ok()) return;
  }
  f.Return(x);
}

// Keeps the elements for which kKeeps(column - row, k) is true. The others become 0.
template <Value (*kKeeps)(const Value&, const Value&)>
void Triangle(Formula& f) {
  const Value x = f.input(0);
  const int rank = x.shape().rank();
  if (rank < 2) return f.Fail("needs at least two axes");
  const auto positions = [&](int axis) {
    return f.Create("arange", {{"stop", x.shape().dim(axis)}});
  };
  const Value row = Reshape(positions(rank - 2), {x.shape().dim(rank - 2), 1});
  f.Return(Where(kKeeps(positions(rank - 1) - row, f.attrs().Int("k")), x, 0));
}

void Pad(Formula& f) {
  const std::vector<int64_t>& pad = f.attrs().Ints("pad");
  const Value x = f.input(0);
  const int rank = x.shape().rank();
  if (pad.size() % 2 != 0 || pad.size() / 2 > static_cast<size_t>(rank)) {
    return f.Fail(absl::StrCat(pad.size(), " sizes; there must be two for each padded axis"));
  }
  Shape shape = x.shape();
  std::vector<int64_t> before(rank, 0);
  for (size_t i = 0; i < pad.size(); i += 2) {
    if (pad[i] < 0 || pad[i + 1] < 0 || pad[i] > kMaxElements || pad[i + 1] > kMaxElements) {
      return f.Fail("a size is negative or too large");
    }
    const int axis = rank - 1 - static_cast<int>(i / 2);
    before[axis] = pad[i];
    shape.set_dim(axis, shape.dim(axis) + pad[i] + pad[i + 1]);
  }
  if (shape == x.shape()) return f.Return(x);
  const Value around = f.Full(f.Number("value"), shape, x.dtype());
  if (!f.ok()) return;
  const Dims strides = RowMajorStrides(shape);
  int64_t offset = 0;
  for (int d = 0; d < rank; ++d) offset += before[d] * strides[d];
  f.Return(AsStridedScatter(around, x, x.shape(), strides, offset));
}

// Computes from both ends, so that both are exact. As in PyTorch, the ends are converted to the
// dtype first, and the step is float32 for floating dtypes other than float64.
void Linspace(Formula& f) {
  const DType dtype = f.attrs().Type("dtype");
  const int64_t count = f.attrs().Int("count");
  if (dtype == DType::kBool || IsComplex(dtype)) {
    return f.Fail(absl::StrCat("there is no linspace of ", DTypeName(dtype)));
  }
  if (count < 0 || count > kMaxElements) {
    return f.Fail(absl::StrCat("count must be from 0 to ", kMaxElements, ", and is ", count));
  }
  const DType wide =
      dtype == DType::kFloat64 || IsInteger(dtype) ? DType::kFloat64 : DType::kFloat32;
  const Value start = f.Full(f.Number("start"), {}, dtype).To(wide);
  const Value stop = f.Full(f.Number("stop"), {}, dtype).To(wide);
  const int64_t steps = f.attrs().Bool("endpoint") ? count - 1 : count;
  if (!f.ok()) return;
  if (steps < 1) return f.Return(BroadcastTo(start, {count}).To(dtype));
  const Value step = (stop - start) / static_cast<double>(steps);
  const Value i = f.Create("arange", {{"stop", count}, {"dtype", DType::kFloat64}});
  const Value from_start = i * step + start;
  const Value from_stop = stop - (static_cast<double>(steps) - i) * step;
  f.Return(Where(Lt(i, (steps + 1) / 2), from_start, from_stop).To(dtype));
}

OpSchema Movement(const char* name, const char* signature, const char* doc,
                  void (*formula)(Formula&), std::vector<AttrDef> attrs) {
  return {.name = name,
          .signature = signature,
          .doc = doc,
          .min_inputs = 1,
          .max_inputs = 1,
          .attrs = std::move(attrs),
          .takes_complex = true,
          .formula = formula};
}

}  // namespace
}  // namespace formula

void AppendShapeCompositions(std::vector<OpSchema>& ops) {
  const AttrDef diagonal =
      OptionalAttr("k", AttrType::kInt, int64_t{0}, "the diagonal: above the main one if positive");
  ops.push_back(formula::Movement(
      "roll", "(…) -> (…)",
      "x with every element moved along the axes. Elements beyond the end continue at the start.",
      formula::Roll,
      {RequiredAttr("shift", AttrType::kInts, "how far, for each axis; negative: to the start"),
       OptionalAttr("axes", AttrType::kInts, std::vector<int64_t>{},
                    "as many as shifts; empty: one shift moves the flattened elements")}));
  ops.push_back(formula::Movement("tril", "(…,M,N) -> (…,M,N)",
                                  "The matrices of the last two axes with 0 above a diagonal.",
                                  formula::Triangle<formula::Le>, {diagonal}));
  ops.push_back(formula::Movement("triu", "(…,M,N) -> (…,M,N)",
                                  "The matrices of the last two axes with 0 below a diagonal.",
                                  formula::Triangle<formula::Ge>, {diagonal}));
  ops.push_back(formula::Movement(
      "pad", "(…) -> (…)", "x with a value before and after its elements along the last axes.",
      formula::Pad,
      {RequiredAttr(
           "pad", AttrType::kInts,
           "two sizes for each padded axis, before and after, beginning with the last axis"),
       OptionalAttr("value", AttrType::kScalar, int64_t{0}, "the value")}));
  ops.push_back(
      {.name = "linspace",
       .signature = "() -> (N)",
       .doc = "Values from start to stop in equal steps, computed as PyTorch does.",
       .min_inputs = 0,
       .max_inputs = 0,
       .attrs = {RequiredAttr("start", AttrType::kScalar, "the first value"),
                 RequiredAttr("stop", AttrType::kScalar, "the end"),
                 RequiredAttr("count", AttrType::kInt, "number of values"),
                 OptionalAttr("endpoint", AttrType::kBool, true, "whether stop is the last value"),
                 OptionalAttr("dtype", AttrType::kDType, DType::kFloat32, "dtype of the result")},
       .formula = formula::Linspace});
}

}  // namespace tensord
