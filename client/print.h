// Prints tensors as PyTorch does.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "tensord/common/device_name.h"
#include "tensord/common/tensor_spec.h"

namespace tensord {

// The names and default values of torch.set_printoptions.
struct PrintOptions {
  int precision = 4;         // digits after the point
  int64_t threshold = 1000;  // tensors of more elements are summarised
  int64_t edge_items = 3;    // elements shown at each end of a summarised axis
  int line_width = 80;       // in columns; a line has at least one element
};

// Returns the values of a tensor as PyTorch prints them:
//   tensor([[1., 2.],
//           [3., 4.]], device='cpu:0')
// The text names the device, and the dtype unless it is float32, int64, bool or complex64. If the
// tensor has no elements, the text names every dtype except float32, and the shape unless it is
// one-dimensional. `data` must hold exactly spec.size_bytes() bytes, row-major; otherwise returns
// INVALID_ARGUMENT. A pure function.
absl::StatusOr<std::string> FormatTensor(const TensorSpec& spec, absl::Span<const uint8_t> data,
                                         absl::string_view device,
                                         const PrintOptions& options = {});

// "cuda", "cuda:1".
std::ostream& operator<<(std::ostream& out, DeviceKind kind);
std::ostream& operator<<(std::ostream& out, const DeviceName& device);

// "float32", "[2, 3]", "float32[2, 3]".
std::ostream& operator<<(std::ostream& out, DType dtype);
std::ostream& operator<<(std::ostream& out, const Shape& shape);
std::ostream& operator<<(std::ostream& out, const TensorSpec& spec);

}  // namespace tensord
