// The emulation's allocations on devices and of pinned host memory.
//
// A device allocation ends, rounded up to 256 bytes, at an inaccessible page; another inaccessible
// page precedes it. Freed memory becomes inaccessible. So a kernel that accesses memory out of
// bounds or after its free raises SIGSEGV, as does host code that accesses device memory at all
// (address_space.h). The padding is checked when the memory is freed: if it has changed, the
// process ends.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/strings/string_view.h"

namespace tensord::cuda_emulation {

enum class Space { kDevice, kPinnedHost };

class Pool;

// All functions are thread-safe. Pointers to device memory are device addresses unless the function
// says otherwise.

// Allocates `bytes` on `device`. BeginFree() and FinishFree() free the memory. If the device or the
// host has too little memory, returns cudaErrorMemoryAllocation.
cudaError_t AllocateOnDevice(void** out, size_t bytes, int device);
// The same, from a pool, which the memory keeps alive.
cudaError_t AllocateFromPool(void** out, size_t bytes, const std::shared_ptr<Pool>& pool);

// Fills the first 64 KiB of [backing, backing + bytes), which are backing addresses, with a
// pattern, so that values written too early are lost.
void FillWithPattern(void* backing, size_t bytes);
// The same for an allocation that may have been freed meanwhile: then does nothing.
void FillAllocationWithPattern(void* data);

// cudaFreeAsync() frees in two steps: the host may no longer name the memory after BeginFree(), but
// enqueued work may use it until FinishFree(). If `data` isn't the start of a device allocation, or
// is freed already, BeginFree() reports it and returns cudaErrorInvalidValue. `device`, if not
// null, receives the allocation's device.
cudaError_t BeginFree(void* data, absl::string_view call, int* device);
void FinishFree(void* data);

// Pinned host memory, which the reset of `device` frees. FreePinned() reports it in the name of
// `call` and returns cudaErrorInvalidValue if `data` isn't the start of such memory.
cudaError_t AllocatePinned(void** out, size_t bytes, int device);
cudaError_t FreePinned(void* data, absl::string_view call);

inline constexpr int kAnyDevice = -1;

// If [data, data + bytes) isn't within one allocation of `space`, or if that is freed or on another
// device than `device`, reports it in the name of `call` and returns cudaErrorInvalidValue.
cudaError_t CheckMemory(const void* data, size_t bytes, Space space, absl::string_view call,
                        int device = kAnyDevice);

// Returns whether work on `device` may access the allocation at `data`: it is on that device, or in
// a pool with access for the device. True if there is no allocation.
bool IsAccessible(const void* data, int device);

// Returns what a kernel of `device` gets for the pointer `data`: the backing of memory that it may
// access now, otherwise `data` itself, at which an access faults.
void* KernelAddress(const void* data, int device);

// Says what is at an address that device work failed to access: "freed memory of device 0".
std::string DescribeAddress(const void* device_address);

}  // namespace tensord::cuda_emulation
