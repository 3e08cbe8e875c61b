// Functions that move or mask elements. Roll, Tril, Triu and Pad are ops. The others are reshape,
// slice or concat with other arguments.
//
// No function waits, errors are in the result's status, and all functions are thread-safe. Negative
// axes count from the end.
#pragma once

#include <cstdint>

#include "absl/types/span.h"
#include "tensord/client/scalar.h"
#include "tensord/client/tensor.h"

namespace tensord {

// Reverses the order of elements along the axes. If `axes` is empty, does so along all axes.
Tensor Flip(const Tensor& x, absl::Span<const int64_t> axes = {});

// Moves every element along an axis by `shift` positions. Elements that would pass the end continue
// at the start. A negative shift moves toward the start.
Tensor Roll(const Tensor& x, int64_t shift, int64_t axis);
// Rolls along several axes: by shifts[i] along axes[i]. If `axes` is empty, rolls the flattened
// tensor by the one shift, and restores its shape.
Tensor Roll(const Tensor& x, absl::Span<const int64_t> shifts, absl::Span<const int64_t> axes = {});

// Returns the matrices of the last two axes with zeros above (Tril) or below (Triu) diagonal k:
// k = 0 is the main diagonal, k > 0 one above it. x must have at least two axes.
Tensor Tril(const Tensor& x, int64_t k = 0);
Tensor Triu(const Tensor& x, int64_t k = 0);

// Returns x with `value` before and after its elements along the last pad.size() / 2 axes. `pad`
// has two sizes for each of these axes, before and after, and begins with the last axis. No size
// may be negative. A value above the largest int64 is rounded to float64.
Tensor Pad(const Tensor& x, absl::Span<const int64_t> pad, Scalar value = 0);

// Adds an axis of size 1, which is axis `axis` of the result.
Tensor Unsqueeze(const Tensor& x, int64_t axis);
// Removes those of the axes that have the size 1. If `axes` is empty, removes all axes of size 1.
Tensor Squeeze(const Tensor& x, absl::Span<const int64_t> axes = {});
// Joins the axes from start_axis to end_axis, both included. A tensor of shape [] gives [1].
Tensor Flatten(const Tensor& x, int64_t start_axis = 0, int64_t end_axis = -1);
// Returns element `index` along an axis, without that axis. A negative index counts from the end.
Tensor Select(const Tensor& x, int64_t axis, int64_t index);
// Joins tensors of one shape along a new axis, which is axis `axis` of the result.
Tensor Stack(absl::Span<const Tensor> tensors, int64_t axis = 0);

}  // namespace tensord
