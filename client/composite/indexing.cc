#include "tensord/client/composite/indexing.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tensord/client/creation.h"
#include "tensord/client/internal/composite.h"

namespace tensord {
namespace {

using internal::Composite;

Tensor Invalid(absl::string_view function, absl::string_view what, const Tensor& x) {
  return Tensor::Failed(absl::InvalidArgumentError(
      absl::StrCat(function, ": ", what, "; input is ", x.spec().ToString())));
}

// Returns `shape` with another size along an axis.
Shape WithSize(const Shape& shape, int axis, int64_t size) {
  Shape result = shape;
  result.set_dim(axis, size);
  return result;
}

Shape WithoutAxis(const Shape& shape, int axis) {
  Shape result;
  for (int d = 0; d < shape.rank(); ++d) {
    if (d != axis) result.AppendDim(shape.dim(d));
  }
  return result;
}

// Returns x with `src` in place of element `index` along the axis.
Tensor ScatterSelected(absl::string_view function, const Tensor& x, const Tensor& src, int64_t axis,
                       int64_t index, bool donate) {
  const absl::StatusOr<int> from_zero = NormalizeAxis(axis, x.shape().rank());
  if (!from_zero.ok()) return Invalid(function, from_zero.status().message(), x);
  const int64_t size = x.shape().dim(*from_zero);
  if (index < -size || index >= size) {
    return Invalid(function,
                   absl::StrCat("index ", index, " is out of range for axis ", *from_zero), x);
  }
  Dims strides = RowMajorStrides(x.shape());
  const int64_t offset = (index < 0 ? index + size : index) * strides[*from_zero];
  strides.erase(strides.begin() + *from_zero);
  return Composite(function, {x, src},
                   AsStridedScatter(x, src, WithoutAxis(x.shape(), *from_zero), strides,
                                    {.offset = offset, .donate = donate}));
}

// Returns x with `src` in place of the slice.
Tensor ScatterSlice(absl::string_view function, const Tensor& x, const Tensor& src,
                    const SliceScatterOptions& options, bool donate) {
  const absl::StatusOr<int> axis = NormalizeAxis(options.axis, x.shape().rank());
  if (!axis.ok()) return Invalid(function, axis.status().message(), x);
  if (options.step < 1) return Invalid(function, "the step must be 1 or more", x);
  const int64_t size = x.shape().dim(*axis);
  const auto clamp = [size](int64_t i) {
    return std::clamp<int64_t>(i < 0 ? i + size : i, 0, size);
  };
  const int64_t start = clamp(options.start), stop = std::max(start, clamp(options.stop));
  const int64_t count = stop == start ? 0 : (stop - start - 1) / options.step + 1;
  Dims strides = RowMajorStrides(x.shape());
  const int64_t offset = start * strides[*axis];
  // If the slice has at most one element, the step has no effect.
  if (count > 1) strides[*axis] *= options.step;
  return Composite(function, {x, src},
                   AsStridedScatter(x, src, WithSize(x.shape(), *axis, count), strides,
                                    {.offset = offset, .donate = donate}));
}

}  // namespace

Tensor IndexSelect(const Tensor& x, int64_t axis, const Tensor& index) {
  if (index.ok() && index.shape().rank() != 1) {
    return Invalid("index_select", "the index must have one dimension", index);
  }
  return Composite("index_select", {x, index}, Index(x, {index}, axis));
}

Tensor TakeAlongDim(const Tensor& x, const Tensor& index, int64_t axis) {
  if (!x.ok() || !index.ok()) return Gather(x, axis, index);
  const absl::StatusOr<int> from_zero = NormalizeAxis(axis, x.shape().rank());
  if (!from_zero.ok()) return Invalid("take_along_dim", from_zero.status().message(), x);
  if (index.shape().rank() != x.shape().rank()) return Gather(x, axis, index);
  const absl::StatusOr<Shape> others =
      BroadcastShapes(WithSize(x.shape(), *from_zero, 1), WithSize(index.shape(), *from_zero, 1));
  if (!others.ok()) return Invalid("take_along_dim", others.status().message(), x);
  const auto expand = [&](const Tensor& tensor) {
    const Shape shape = WithSize(*others, *from_zero, tensor.shape().dim(*from_zero));
    return shape == tensor.shape() ? tensor : BroadcastTo(tensor, shape);
  };
  return Composite("take_along_dim", {x, index}, Gather(expand(x), axis, expand(index)));
}

Tensor Embedding(const Tensor& indices, const Tensor& weight) {
  return Composite("embedding", {indices, weight}, Index(weight, {indices}));
}

Tensor OneHot(const Tensor& indices, int64_t classes) {
  if (!indices.ok()) return indices;
  if (classes < 1) return Invalid("one_hot", "there must be at least one class", indices);
  Shape shape = indices.shape(), column = indices.shape();
  shape.AppendDim(classes);
  column.AppendDim(1);
  const Device& device = indices.device();
  const CreateOptions integers = {.dtype = DType::kInt64};
  return Composite("one_hot", {indices},
                   Scatter(Zeros(device, shape, integers), -1, Reshape(indices, column),
                           Ones(device, {}, integers), {.donate = true}));
}

Tensor EmbeddingBackward(const Tensor& gradient, const Tensor& indices, int64_t rows,
                         const EmbeddingBackwardOptions& options) {
  if (!gradient.ok()) return gradient;
  if (!indices.ok()) return indices;
  const auto invalid = [&](absl::string_view what) {
    return Invalid("embedding_backward", what, gradient);
  };
  if (gradient.rank() != indices.rank() + 1) {
    return invalid("the gradient must have the shape of the indices and a last dimension");
  }
  if (rows < 0) return invalid("the number of rows is negative");
  int64_t padding = 0;
  if (options.padding_idx.has_value()) {
    padding = *options.padding_idx < 0 ? *options.padding_idx + rows : *options.padding_idx;
    if (padding < 0 || padding >= rows) {
      return invalid(absl::StrCat("padding_idx is ", *options.padding_idx, ", and the weight has ",
                                  rows, " rows"));
    }
  }
  const Device& device = gradient.device();
  Tensor added = gradient;
  if (options.scale_grad_by_freq) {
    const CreateOptions integers = {.dtype = DType::kInt64};
    const Tensor counts =
        IndexPut(Zeros(device, {rows}, integers), {indices}, Ones(device, {}, integers),
                 {.accumulate = true, .donate = true});
    Shape column = indices.shape();
    column.AppendDim(1);
    const Tensor wide = internal::Widen(gradient);
    added = wide / Reshape(Index(counts, {indices}), column).To(wide.dtype());
  }
  const int64_t width = gradient.shape().dim(gradient.rank() - 1);
  Tensor sums = IndexPut(Zeros(device, {rows, width}, {.dtype = added.dtype()}), {indices}, added,
                         {.accumulate = true, .donate = true});
  if (options.padding_idx.has_value()) {
    sums = AsStridedScatter(sums, Zeros(device, {width}, {.dtype = added.dtype()}), {width}, {1},
                            {.offset = padding * width, .donate = true});
  }
  return Composite("embedding_backward", {gradient, indices}, sums.To(gradient.dtype()));
}

Tensor SelectScatter(const Tensor& x, const Tensor& src, int64_t axis, int64_t index) {
  if (!x.ok()) return x;
  return ScatterSelected("select_scatter", x, src, axis, index, false);
}

Tensor SelectBackward(const Tensor& gradient, const Shape& shape, int64_t axis, int64_t index) {
  if (!gradient.ok()) return gradient;
  const Tensor zeros = Zeros(gradient.device(), shape, {.dtype = gradient.dtype()});
  if (!zeros.ok()) return Composite("select_backward", {gradient}, zeros);
  return ScatterSelected("select_backward", zeros, gradient, axis, index, true);
}

Tensor SliceScatter(const Tensor& x, const Tensor& src, const SliceScatterOptions& options) {
  if (!x.ok()) return x;
  return ScatterSlice("slice_scatter", x, src, options, false);
}

Tensor SliceBackward(const Tensor& gradient, const Shape& shape,
                     const SliceScatterOptions& options) {
  if (!gradient.ok()) return gradient;
  const Tensor zeros = Zeros(gradient.device(), shape, {.dtype = gradient.dtype()});
  if (!zeros.ok()) return Composite("slice_backward", {gradient}, zeros);
  return ScatterSlice("slice_backward", zeros, gradient, options, true);
}

Tensor MaskedFill(const Tensor& x, const Tensor& mask, Operand value) {
  return Composite("masked_fill", {x, mask, value}, Where(mask, value, x));
}

Tensor Pad(const Tensor& x, absl::Span<const int64_t> pad, Scalar value) {
  if (!x.ok()) return x;
  const int rank = x.shape().rank();
  if (pad.size() % 2 != 0 || pad.size() / 2 > static_cast<size_t>(rank)) {
    return Invalid("pad",
                   absl::StrCat(pad.size(), " sizes; there must be two for each padded axis"), x);
  }
  Shape shape = x.shape();
  std::vector<int64_t> before(rank, 0);
  for (size_t i = 0; i < pad.size(); i += 2) {
    if (pad[i] < 0 || pad[i + 1] < 0 || pad[i] > kMaxElements || pad[i + 1] > kMaxElements) {
      return Invalid("pad", "a size is negative or too large", x);
    }
    const int axis = rank - 1 - static_cast<int>(i / 2);
    before[axis] = pad[i];
    shape.set_dim(axis, shape.dim(axis) + pad[i] + pad[i + 1]);
  }
  const Tensor around = Full(x.device(), shape, value, {.dtype = x.dtype()});
  if (!around.ok()) return Composite("pad", {x}, around);
  const Dims strides = RowMajorStrides(shape);
  int64_t offset = 0;
  for (int d = 0; d < rank; ++d) offset += before[d] * strides[d];
  return Composite(
      "pad", {x},
      AsStridedScatter(around, x, x.shape(), strides, {.offset = offset, .donate = true}));
}

}  // namespace tensord
