// The emulation's allocations on devices and of pinned host memory.
//
// Each device allocation is a separate mapping. It ends, rounded up to 256 bytes, at an
// inaccessible page; another inaccessible page precedes it. Freed memory becomes inaccessible. So a
// kernel that accesses memory out of bounds or after its free raises SIGSEGV. The padding is
// checked when the memory is freed: if it has changed, the process ends.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "absl/strings/string_view.h"

namespace tensord::cuda_emulation {

enum class Space { kDevice, kPinnedHost };

// All functions are thread-safe.

// Allocates `bytes` on `device`. BeginFree() and FinishFree() free the memory. If the device or the
// host has too little memory, returns cudaErrorMemoryAllocation.
cudaError_t AllocateOnDevice(void** out, size_t bytes, int device);

// Fills the first 64 KiB of [data, data + bytes) with a pattern, so that values written too early
// are lost.
void FillWithPattern(void* data, size_t bytes);

// cudaFreeAsync() frees in two steps: the host may no longer name the memory after BeginFree(), but
// enqueued work may use it until FinishFree(). If `data` isn't the start of a device allocation, or
// is freed already, BeginFree() reports it and returns cudaErrorInvalidValue. `device`, if not
// null, receives the allocation's device.
cudaError_t BeginFree(void* data, absl::string_view call, int* device);
void FinishFree(void* data);

inline constexpr int kAnyDevice = -1;

// If [data, data + bytes) isn't within one allocation of `space`, or if that is freed or on another
// device than `device`, reports it in the name of `call` and returns cudaErrorInvalidValue.
cudaError_t CheckMemory(const void* data, size_t bytes, Space space, absl::string_view call,
                        int device = kAnyDevice);

}  // namespace tensord::cuda_emulation
