// The steps of printing: choose the shown elements, and format them.
#pragma once

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "tensord/client/print.h"
#include "tensord/common/tensor_spec.h"

namespace tensord::internal {

// Returns the shape of the shown elements. If `shape` has more than options.threshold elements,
// every long axis is reduced to its first and last options.edge_items. Otherwise returns `shape`.
Shape ShownShape(const Shape& shape, const PrintOptions& options);

// Returns the text for a tensor of `spec`. `shown` has the elements of ShownShape(spec.shape).
std::string FormatShown(const TensorSpec& spec, absl::Span<const uint8_t> shown,
                        absl::string_view device, const PrintOptions& options);

}  // namespace tensord::internal
