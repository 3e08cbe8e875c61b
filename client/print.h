// Text that looks like PyTorch's: how tensors are printed.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "tensord/common/tensor_spec.h"

namespace tensord {

// Named, and by default valued, as torch.set_printoptions has them.
struct PrintOptions {
  int precision = 4;         // digits after the point
  int64_t threshold = 1000;  // tensors of more elements are summarised
  int64_t edge_items = 3;    // elements shown at each end of a summarised axis
  int line_width = 80;       // columns, as far as one element leaves a choice
};

// The values of a tensor as PyTorch prints them:
//   tensor([[1., 2.],
//           [3., 4.]], device='cpu:0')
// The device is always named; the dtype where the values don't tell it (neither float32, int64 nor
// bool), and the shape where there are no values. `data` holds the elements row-major, exactly
// spec.size_bytes() of them; INVALID_ARGUMENT otherwise. A pure function.
absl::StatusOr<std::string> FormatTensor(const TensorSpec& spec, absl::Span<const uint8_t> data,
                                         absl::string_view device,
                                         const PrintOptions& options = {});

// "float32", "[2, 3]", "float32[2, 3]".
std::ostream& operator<<(std::ostream& out, DType dtype);
std::ostream& operator<<(std::ostream& out, const Shape& shape);
std::ostream& operator<<(std::ostream& out, const TensorSpec& spec);

}  // namespace tensord
