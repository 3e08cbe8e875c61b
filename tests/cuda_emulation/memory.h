// Which memory has been allocated, on which device or on the host.
//
// Each device allocation is a mapping of its own that ends, rounded up to 256 bytes, at an
// inaccessible page, and another inaccessible page lies before it. Freed memory becomes
// inaccessible. So a kernel that leaves its memory or uses freed memory raises SIGSEGV. The bytes
// that the rounding adds are checked when the memory is freed: if they have changed, the process
// ends.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "absl/strings/string_view.h"

namespace tensord::cuda_emulation {

enum class Space { kDevice, kPinnedHost };

// All functions are thread-safe.

// cudaErrorMemoryAllocation if the device's memory is used up.
cudaError_t AllocateOnDevice(void** out, size_t bytes, int device);

// Fills the start of an allocation with a pattern, so that values written too early are lost.
void Scribble(void* data, size_t bytes);

// Freeing has two steps, since cudaFreeAsync() forbids the host to name the memory at once, while
// work that is enqueued already may use it. BeginFree() reports an error if `data` is not the start
// of an allocation, or is freed already; `device` may be null.
cudaError_t BeginFree(void* data, absl::string_view call, int* device);
void FinishFree(void* data);

// Whether [data, data + bytes) lies in one allocation of that space; reports an error if not.
cudaError_t CheckMemory(const void* data, size_t bytes, Space space, absl::string_view call);

}  // namespace tensord::cuda_emulation
