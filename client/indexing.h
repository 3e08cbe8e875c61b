// Ops that read and write parts of tensors, by indices and by strides.
//
// Indices are int32 or int64. Negative ones count from the end of the axis. If an index is out of
// range, the result fails with INVALID_ARGUMENT when the op has run. Other errors, and thread
// safety, are as in ops.h.
#pragma once

#include <cstdint>
#include <optional>

#include "absl/types/span.h"
#include "tensord/client/ops.h"
#include "tensord/client/tensor.h"
#include "tensord/common/dtype.h"
#include "tensord/common/shape.h"

namespace tensord {

// Returns x[…, i1, …, ik, …]: the parts of x at the indices into k adjacent axes, from `axis` on.
// The index tensors broadcast to one shape, which takes the place of these axes in the result's
// shape.
Tensor Index(const Tensor& x, absl::Span<const Tensor> indices, int64_t axis = 0);

// result[i][j][k] = x[index[i][j][k]][j][k] for axis 0, and so on for other axes. The result has
// the shape of `index`, which has the rank of x. Along other axes it isn't longer than x.
Tensor Gather(const Tensor& x, int64_t axis, const Tensor& index);

struct IndexPutOptions {
  int64_t axis = 0;
  // If false, the last of several values for an element replaces it. If true, all values are added
  // to the element, in order.
  bool accumulate = false;
  // Lets the op overwrite x, which saves a copy. All copies of this Tensor then fail from the call
  // on (RunOptions in ops.h).
  bool donate = false;
};
// Returns x with `values` in place of Index(x, indices, axis). `values` has the shape of that
// tensor, or [].
Tensor IndexPut(const Tensor& x, absl::Span<const Tensor> indices, const Tensor& values,
                const IndexPutOptions& options = {});

enum class ScatterReduction { kNone, kAdd, kMul, kMax, kMin };
struct ScatterOptions {
  // With kNone, the last of several values for an element replaces it. Otherwise the element is
  // combined with all values, in order.
  ScatterReduction reduce = ScatterReduction::kNone;
  bool donate = false;  // as IndexPutOptions::donate
};
// Returns x with result[index[i][j][k]][j][k] = src[i][j][k] for axis 0, and so on for other axes.
// `index` is as for Gather. `src` has at least its sizes, or the shape [].
Tensor Scatter(const Tensor& x, int64_t axis, const Tensor& index, const Tensor& src,
               const ScatterOptions& options = {});
// Calls Scatter() with ScatterReduction::kAdd.
Tensor ScatterAdd(const Tensor& x, int64_t axis, const Tensor& index, const Tensor& src);

// Returns a tensor whose element at (i, j, …) is the element offset + i strides[0] + j strides[1] +
// … of x, in row-major order. Strides may be negative or 0. All elements must be inside x.
Tensor AsStrided(const Tensor& x, const Shape& shape, absl::Span<const int64_t> strides,
                 int64_t offset = 0);

struct AsStridedScatterOptions {
  int64_t offset = 0;
  bool donate = false;  // as IndexPutOptions::donate
};
// Returns x with `src` in place of AsStrided(x, shape, strides, offset). The elements of that
// tensor must be distinct elements of x.
Tensor AsStridedScatter(const Tensor& x, const Tensor& src, const Shape& shape,
                        absl::Span<const int64_t> strides,
                        const AsStridedScatterOptions& options = {});

// Returns the bytes of x as elements of another dtype, as torch.Tensor.view(dtype) does. The result
// shares the memory of x. If the dtypes have different sizes, the last dimension changes
// accordingly.
Tensor Bitcast(const Tensor& x, DType dtype);

// ---------------------------------------------------------------- shorthands and gradients

// Returns the slices of x along an axis at the indices, a tensor of rank 1.
Tensor IndexSelect(const Tensor& x, int64_t axis, const Tensor& index);

// Does the same as Gather, but x and `index` broadcast along the other axes.
Tensor TakeAlongDim(const Tensor& x, const Tensor& index, int64_t axis);

// Returns the rows of `weight` at the indices: (…), (n,d) -> (…,d).
Tensor Embedding(const Tensor& indices, const Tensor& weight);

struct EmbeddingBackwardOptions {
  std::optional<int64_t> padding_idx = {};  // the gradient of this row is 0
  bool scale_grad_by_freq = false;          // divides each row by the count of its index
};
// Returns the gradient of `weight`, which has `rows` rows: the sum of the gradients of the results
// that are this row, (…,d), (…) -> (rows,d). Sums are in the order of the indices.
Tensor EmbeddingBackward(const Tensor& gradient, const Tensor& indices, int64_t rows,
                         const EmbeddingBackwardOptions& options = {});

// Returns, for each index, a row of zeros with a one at this index: (…) -> (…,classes), int64.
Tensor OneHot(const Tensor& indices, int64_t classes);

// Returns x with `src` in place of the slice at `index` along an axis. `src` has the shape of x
// without the axis.
Tensor SelectScatter(const Tensor& x, const Tensor& src, int64_t axis, int64_t index);
// Returns the gradient of x for the result of Select(x, axis, index). `shape` is that of x.
Tensor SelectBackward(const Tensor& gradient, const Shape& shape, int64_t axis, int64_t index);

struct SliceScatterOptions {
  int64_t axis = 0;
  int64_t start = 0;
  int64_t stop = kToEnd;
  int64_t step = 1;  // at least 1
};
// Returns x with `src` in place of x[start:stop:step] along an axis, with Python's rules.
Tensor SliceScatter(const Tensor& x, const Tensor& src, const SliceScatterOptions& options = {});
// Returns the gradient of x for the slice that the options describe. `shape` is that of x.
Tensor SliceBackward(const Tensor& gradient, const Shape& shape,
                     const SliceScatterOptions& options = {});

// Returns x with `value` in place of the elements for which the mask, a bool tensor, is true.
Tensor MaskedFill(const Tensor& x, const Tensor& mask, Operand value);

}  // namespace tensord
