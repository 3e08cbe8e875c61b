// The functions of tensors whose arguments differ from those of an op.
#include <algorithm>
#include <cctype>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tensord/client/elementwise.h"
#include "tensord/client/indexing.h"
#include "tensord/client/movement.h"
#include "tensord/client/ops.h"
#include "tensord/client/python/tensord/_core/function.h"
#include "tensord/client/selection.h"
#include "tensord/client/sorting.h"

namespace tensord::python {
namespace {

// Returns an axis from 0 to rank - 1, or raises an IndexError.
size_t ReadAxis(int64_t axis, int rank) {
  return static_cast<size_t>(Unwrap(NormalizeAxis(axis, rank)));
}

Tensor SqueezeAxes(const Call& call) {
  const Tensor& x = call.tensor(0);
  const std::vector<int64_t> axes = call.ints(1);
  for (const int64_t axis : axes) ReadAxis(axis, x.rank());
  if (call.has(1) && axes.empty()) return x;
  return Squeeze(x, axes);
}

Tensor InsertAxis(const Call& call) {
  const Tensor& x = call.tensor(0);
  return Unsqueeze(x, static_cast<int64_t>(ReadAxis(call.integer(1), x.rank() + 1)));
}

Tensor FlattenAxes(const Call& call) {
  const Tensor& x = call.tensor(0);
  const int rank = std::max(x.rank(), 1);
  return Flatten(x, static_cast<int64_t>(ReadAxis(call.integer(1, 0), rank)),
                 static_cast<int64_t>(ReadAxis(call.integer(2, -1), rank)));
}

Tensor StackTensors(const Call& call) {
  const std::vector<Tensor> tensors = call.tensors(0);
  const int64_t axis = call.integer(1, 0);
  if (!tensors.empty()) ReadAxis(axis, tensors[0].rank() + 1);
  return Stack(tensors, axis);
}

// Returns the parts of x along an axis that begin at the positions in `starts`.
nb::object SplitAt(const Tensor& x, const std::vector<int64_t>& starts, int64_t axis) {
  nb::list parts;
  for (size_t i = 0; i < starts.size(); ++i) {
    const int64_t stop = i + 1 < starts.size() ? starts[i + 1] : kToEnd;
    parts.append(Wrap(Slice(x, {starts[i]}, {stop}, {.axes = {axis}})));
  }
  return nb::tuple(parts);
}

nb::object Split(const Call& call) {
  const Tensor& x = call.tensor(0);
  const size_t axis = ReadAxis(call.integer(2, 0), x.rank());
  const int64_t length = x.shape().dim(static_cast<int>(axis));
  std::vector<int64_t> starts;
  if (PyLong_Check(call.at(1))) {
    const int64_t size = call.integer(1);
    if (size <= 0) RaiseValueError("split(): the size of a part must be above 0");
    for (int64_t at = 0; at < std::max<int64_t>(length, 1); at += size) starts.push_back(at);
  } else {
    int64_t at = 0;
    for (const int64_t size : call.ints(1)) {
      starts.push_back(at);
      at += size;
    }
    if (at != length) {
      RaiseValueError(
          absl::StrCat("split(): the sizes add up to ", at, ", and the axis has ", length));
    }
  }
  return SplitAt(x, starts, static_cast<int64_t>(axis));
}

nb::object Chunk(const Call& call) {
  const Tensor& x = call.tensor(0);
  const size_t axis = ReadAxis(call.integer(2, 0), x.rank());
  const int64_t count = call.integer(1);
  if (count <= 0) RaiseValueError("chunk(): the number of parts must be above 0");
  const int64_t length = x.shape().dim(static_cast<int>(axis));
  const int64_t size = std::max<int64_t>((length + count - 1) / count, 1);
  std::vector<int64_t> starts;
  for (int64_t at = 0; at < std::max<int64_t>(length, 1); at += size) starts.push_back(at);
  return SplitAt(x, starts, static_cast<int64_t>(axis));
}

// The number of nonzero elements is known only to the server: waits for it.
Tensor NonZeroOf(const Call& call) {
  const Tensor& x = call.tensor(0);
  if (call.has(1)) return NonZero(x, call.integer(1));
  const Tensor count = CountNonzero(x);
  return NonZero(x, Unwrap(Interruptible([&] { return count.Item<int64_t>(); })));
}

// These two also wait, for the size of their results.
Tensor MaskedSelectOf(const Call& call) {
  return Interruptible([&] { return MaskedSelect(call.tensor(0), call.tensor(1)); });
}
nb::object UniqueOf(const Call& call) {
  const UniqueResult result = Interruptible([&] { return Unique(call.tensor(0)); });
  const bool inverse = call.flag(1), counts = call.flag(2);
  if (!inverse && !counts) return Wrap(result.values);
  nb::list results;
  results.append(Wrap(result.values));
  if (inverse) results.append(Wrap(result.inverse));
  if (counts) results.append(Wrap(result.counts));
  return nb::tuple(results);
}

ScatterReduction ReadReduction(const Call& call, int i) {
  const std::string name = call.has(i) ? call.text(i) : "none";
  constexpr const char* kNames[] = {"none", "add", "mul", "max", "min"};
  for (int k = 0; k < 5; ++k) {
    if (name == kNames[k]) return static_cast<ScatterReduction>(k);
  }
  RaiseValueError(absl::StrCat(
      "reduce must be \"none\", \"add\", \"mul\", \"max\" or \"min\", not \"", name, "\""));
}

Tensor ClampTo(const Call& call) {
  const Tensor& x = call.tensor(0);
  if (!call.has(1) && !call.has(2)) RaiseValueError("clamp() needs min, max or both");
  if (!call.has(1)) return Minimum(x, call.operand(2));
  if (!call.has(2)) return Maximum(x, call.operand(1));
  return Clamp(x, call.operand(1), call.operand(2));
}

Tensor ExpandTo(const Call& call) {
  const Tensor& x = call.tensor(0);
  std::vector<int64_t> shape = call.ints(1);
  const auto added = static_cast<int>(shape.size()) - x.rank();
  for (int i = 0; i < static_cast<int>(shape.size()); ++i) {
    if (shape[i] == -1 && i >= added) shape[i] = x.shape().dim(i - added);
  }
  return BroadcastTo(x, Shape(absl::MakeConstSpan(shape)));
}

const Row kRows[] = {
    // Elementwise.
    {"clamp",
     "x: Tensor, /, min: Tensor | Scalar | None = None, max: Tensor | Scalar | None = None",
     "x, but at least min and at most max. If min exceeds max, the result is max. NaN stays NaN.",
     ClampTo},
    {"where", "condition: Tensor, x: Tensor | Scalar, y: Tensor | Scalar, /",
     "x where the condition is True, y elsewhere, with broadcasting. The condition must be bool.",
     TENSORD_RUN(Where(c.tensor(0), c.operand(1), c.operand(2))), false},

    // Shapes.
    {"reshape", "x: Tensor, /, *shape: int | Sequence[int]",
     "The same elements in another shape. One dimension may be -1: it is computed from the others.",
     TENSORD_RUN(Reshape(c.tensor(0), c.shape(1)))},
    {"view", "x: Tensor, /, *shape: int | Sequence[int]", "The same as reshape.",
     TENSORD_RUN(Reshape(c.tensor(0), c.shape(1)))},
    {"permute", "x: Tensor, /, *axes: int | Sequence[int]",
     "The axes in another order: axis i of the result is axis axes[i] of x.",
     TENSORD_RUN(Permute(c.tensor(0), c.ints(1)))},
    {"transpose", "x: Tensor, axis0: int = -2, axis1: int = -1, /", "Exchanges two axes.",
     TENSORD_RUN(Transpose(c.tensor(0), c.integer(1, -2), c.integer(2, -1)))},
    {"squeeze", "x: Tensor, /, axis: int | Sequence[int] | None = None",
     "Removes axes of size 1: those in axis, or all. As in PyTorch, an axis of another size stays.",
     SqueezeAxes},
    {"unsqueeze", "x: Tensor, /, axis: int", "Adds an axis of size 1 at this position.",
     InsertAxis},
    {"flatten", "x: Tensor, /, start_axis: int = 0, end_axis: int = -1",
     "Joins the axes from start_axis to end_axis into one.", FlattenAxes},
    {"broadcast_to", "x: Tensor, /, *shape: int | Sequence[int]",
     "Repeats x along axes of size 1 and new leading axes until it has this shape.",
     TENSORD_RUN(BroadcastTo(c.tensor(0), c.shape(1)))},
    {"expand", "x: Tensor, /, *shape: int | Sequence[int]",
     "The same as broadcast_to. A dimension of -1 keeps the size of x.", ExpandTo},
    {"concat", "tensors: Sequence[Tensor], /, axis: int = 0",
     "Joins tensors along an axis. Their other dimensions must be equal.",
     TENSORD_RUN(Concat(c.tensors(0), c.integer(1, 0))), false},
    {"cat", "tensors: Sequence[Tensor], /, axis: int = 0", "The same as concat.",
     TENSORD_RUN(Concat(c.tensors(0), c.integer(1, 0))), false},
    {"stack", "tensors: Sequence[Tensor], /, axis: int = 0",
     "Joins tensors of one shape along a new axis.", StackTensors, false},
    {"select", "x: Tensor, /, axis: int, index: int",
     "Element index along an axis, without that axis.",
     TENSORD_RUN(Select(c.tensor(0),
                        static_cast<int64_t>(ReadAxis(c.integer(1), c.tensor(0).rank())),
                        c.integer(2)))},
    {"flip", "x: Tensor, /, axis: int | Sequence[int] | None = None",
     "Reverses the order along the axes; along all axes by default.",
     TENSORD_RUN(Flip(c.tensor(0), c.ints(1)))},

    // Indexing.
    {"index", "x: Tensor, indices: Sequence[Tensor], /, axis: int = 0",
     "The parts of x at the indices into adjacent axes, from axis on.",
     TENSORD_RUN(Index(c.tensor(0), c.tensors(1), c.integer(2, 0)))},
    {"index_select", "x: Tensor, /, axis: int, index: Tensor",
     "The slices of x along an axis at the indices, a tensor of one dimension.",
     TENSORD_RUN(IndexSelect(c.tensor(0), c.integer(1), c.tensor(2)))},
    {"index_put",
     "x: Tensor, indices: Sequence[Tensor], values: Tensor, /, axis: int = 0, accumulate: bool = "
     "False",
     "x with values in place of index(x, indices, axis). accumulate: the values are added to the "
     "elements.",
     TENSORD_RUN(IndexPut(c.tensor(0), c.tensors(1), c.tensor(2),
                          {.axis = c.integer(3, 0), .accumulate = c.flag(4)}))},
    {"scatter", "x: Tensor, /, axis: int, index: Tensor, src: Tensor, reduce: str = \"none\"",
     "x with the value for each index at this index along the axis. reduce: \"none\", \"add\", "
     "\"mul\", \"max\" or\n"
     "\"min\" combines the element with the values in order.",
     TENSORD_RUN(Scatter(c.tensor(0), c.integer(1), c.tensor(2), c.tensor(3),
                         {.reduce = ReadReduction(c, 4)}))},
    {"scatter_add", "x: Tensor, /, axis: int, index: Tensor, src: Tensor",
     "scatter() with reduce=\"add\".",
     TENSORD_RUN(ScatterAdd(c.tensor(0), c.integer(1), c.tensor(2), c.tensor(3)))},
    {"embedding", "indices: Tensor, weight: Tensor, /",
     "The rows of weight at the indices: (…), (n,d) -> (…,d).",
     TENSORD_RUN(Embedding(c.tensor(0), c.tensor(1))), false},
    {"slice_scatter",
     "x: Tensor, src: Tensor, /, axis: int = 0, start: int | None = None, stop: int | None = None, "
     "step: int = 1",
     "x with src in place of x[start:stop:step] along an axis.",
     TENSORD_RUN(
         SliceScatter(c.tensor(0), c.tensor(1),
                      {c.integer(2, 0), c.integer(3, 0), c.integer(4, kToEnd), c.integer(5, 1)}))},
    {"as_strided_scatter",
     "x: Tensor, src: Tensor, /, shape: Sequence[int], strides: Sequence[int], offset: int = 0",
     "x with src in place of as_strided(x, shape, strides, offset), whose elements must be "
     "distinct.",
     TENSORD_RUN(AsStridedScatter(c.tensor(0), c.tensor(1), c.shape(2), c.ints(3),
                                  {.offset = c.integer(4, 0)}))},

    // Sorting.
    {"nonzero", "x: Tensor, /, size: int | None = None",
     "The indices (int64) of the elements that aren't zero, one in each column: (…) -> "
     "(rank,size).\n"
     "By default, the size is their number: the call then waits for the server. Columns of zeros "
     "follow if size\n"
     "is larger.",
     NonZeroOf},
    {"masked_select", "x: Tensor, mask: Tensor, /",
     "The elements of x for which the mask is true, in order: [count]. The call waits for the "
     "server.",
     MaskedSelectOf},
    {"argsort", "x: Tensor, /, axis: int = -1, descending: bool = False",
     "The indices of sort (int64).",
     TENSORD_RUN(ArgSort(c.tensor(0), {c.integer(1, -1), c.flag(2)}))},
    {"searchsorted", "sorted: Tensor, x: Tensor, /, right: bool = False",
     "For each element of x, the index (int64) at which it can be inserted into the sorted "
     "tensor.\n"
     "right: the index after equal elements.",
     TENSORD_RUN(SearchSorted(c.tensor(0), c.tensor(1), {.right = c.flag(2)})), false},
};

}  // namespace

void AddTensorFunctions(nb::module_& m, nb::class_<Box>& tensor) {
  AddRows(m, tensor, kRows, /*are_methods=*/true);
  AddFunction(
      m, tensor,
      {"split", "x: Tensor, sizes: int | Sequence[int], /, axis: int = 0", "tuple[Tensor, ...]",
       "Splits x along an axis into parts of these sizes. With one size, the last part may be "
       "shorter.",
       Split});
  AddFunction(
      m, tensor,
      {"unique", "x: Tensor, /, return_inverse: bool = False, return_counts: bool = False",
       "Tensor | tuple[Tensor, ...]",
       "The different elements in ascending order. return_inverse: also, for each element of x, "
       "the index of its value.\n"
       "return_counts: also how often each value occurs. NaNs are different, and -0 equals +0. The "
       "call waits for the server.",
       UniqueOf});
  AddFunction(
      m, tensor,
      {"chunk", "x: Tensor, count: int, /, axis: int = 0", "tuple[Tensor, ...]",
       "Splits x along an axis into at most count parts of one size. The last part may be shorter.",
       Chunk});
}

}  // namespace tensord::python
