// The pieces of printing: which elements are shown, and the text made of them.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "tensord/client/print.h"
#include "tensord/common/tensor_spec.h"

namespace tensord::internal {

// The shape of what is shown: `shape`, or, where it has more than options.threshold elements, with
// every long axis cut down to its first and last options.edge_items.
Shape ShownShape(const Shape& shape, const PrintOptions& options);

// The code and the message, without the payloads, which are for programs.
inline std::string ErrorText(const absl::Status& error) {
  return error.ToString(absl::StatusToStringMode::kWithNoExtraData);
}

// The text for a tensor of `spec`, given the elements of ShownShape(spec.shape).
std::string FormatShown(const TensorSpec& spec, absl::Span<const uint8_t> shown,
                        absl::string_view device, const PrintOptions& options);

}  // namespace tensord::internal
