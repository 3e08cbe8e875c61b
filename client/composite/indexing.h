// Functions that read and write parts of tensors and are compositions of ops. README.md in this
// folder has their definitions. Names, meanings and order of arguments are PyTorch's, but
// SliceScatter takes options. Errors and thread safety are as in client/indexing.h.
#pragma once

#include <cstdint>
#include <optional>

#include "absl/types/span.h"
#include "tensord/client/indexing.h"
#include "tensord/client/ops.h"
#include "tensord/client/scalar.h"
#include "tensord/client/tensor.h"

namespace tensord {

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

// Returns x with `value` before and after its elements along the last pad.size() / 2 axes. `pad`
// has two sizes for each of these axes, before and after, and begins with the last axis. No size
// may be negative.
Tensor Pad(const Tensor& x, absl::Span<const int64_t> pad, Scalar value = 0);

}  // namespace tensord
