// Functions that move or mask elements, composed of the ops of ops.h. README.md of this folder
// lists their definitions.
//
// No function waits, errors are in the result's status, and all functions are thread-safe. Negative
// axes count from the end.
#pragma once

#include <cstdint>

#include "absl/types/span.h"
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

}  // namespace tensord
