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
// The limits of uploads that are sent at the same time: their number, and their bytes together. An
// upload of more bytes is sent alone.
inline constexpr int kMaxUploadThreads = 8;
inline constexpr int64_t kMaxConcurrentUploadBytes = int64_t{16} << 20;

// Does the same as FromBytes (creation.h), but doesn't wait for the server: copies `data`, and a
// thread sends the copy. Sending begins in the order of the calls. If the transfer fails, its error
// sticks to the tensor. If the copy would exceed kMaxStagedBytes, or there is no memory for it,
// this function does what FromBytes does. Thread-safe.
Tensor UploadStaged(const Device& device, const TensorSpec& spec, absl::Span<const uint8_t> data);

}  // namespace tensord::internal
