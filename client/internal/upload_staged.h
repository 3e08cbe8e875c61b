// Uploads that don't block their caller.
#pragma once

#include <cstdint>

#include "absl/types/span.h"
#include "tensord/client/device.h"
#include "tensord/client/tensor.h"
#include "tensord/common/tensor_spec.h"

namespace tensord::internal {

// The limit of the bytes in this process that UploadStaged has copied and not sent yet.
inline constexpr int64_t kMaxStagedBytes = int64_t{256} << 20;

// Does the same as FromBytes (creation.h), but doesn't wait for the server: copies `data`, and the
// background work thread sends the copy, after earlier ones. If the transfer fails, its error
// sticks to the tensor. If the copy would exceed kMaxStagedBytes, or there is no memory for it,
// this function does what FromBytes does. Thread-safe.
Tensor UploadStaged(const Device& device, const TensorSpec& spec, absl::Span<const uint8_t> data);

}  // namespace tensord::internal
