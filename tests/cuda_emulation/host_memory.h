// Pinned host memory: memory of cudaHostAlloc(), and memory that cudaHostRegister() has registered.
// All functions are thread-safe.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>

#include "absl/strings/string_view.h"

namespace tensord::cuda_emulation {

// Allocates pinned memory. FreePinned() or a reset of `device` frees it. If `data` isn't the start
// of such memory, FreePinned() prints a report that names `call`, and returns
// cudaErrorInvalidValue.
cudaError_t AllocatePinned(void** out, size_t bytes, int device);
cudaError_t FreePinned(void* data, absl::string_view call);

// Checks that [data, data + bytes) lies in one allocation of pinned memory, or in one registered
// range. If not, prints a report that names `call`, and returns cudaErrorInvalidValue.
cudaError_t CheckPinned(const void* data, size_t bytes, absl::string_view call);

// cudaDeviceReset() calls this. Frees the pinned memory that was allocated, and removes the
// registrations that were made, while `device` was current.
void ResetHostMemory(int device);

}  // namespace tensord::cuda_emulation
