// The emulation's allocations on devices.
//
// An allocation ends, rounded up to 256 bytes, at an inaccessible page; another inaccessible
// page precedes it. Freed memory becomes inaccessible. So a kernel that accesses memory out of
// bounds or after its free raises SIGSEGV. Host code that accesses device memory always raises
// SIGSEGV (address_space.h). The padding is checked when the memory is freed: if it has changed,
// the process ends.
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
// Does the same as AllocateOnDevice(), but takes the memory from `pool`. The memory keeps the pool
// alive.
cudaError_t AllocateFromPool(void** out, size_t bytes, const std::shared_ptr<Pool>& pool);

// Fills the first 64 KiB of [backing, backing + bytes) with a pattern, so that values that were
// written too early are lost. `backing` is a backing address.
void FillWithPattern(void* backing, size_t bytes);
// A stream calls this when it reaches the allocation from a pool. Fills the first 64 KiB with the
// pattern. If the allocation has been freed, does nothing.
void ReachAllocation(void* data);

// cudaFreeAsync() frees in two steps. After BeginFree(), the caller must not pass the memory to
// any call. Work that is already enqueued may use the memory until FinishFree(). If `data` isn't
// the start of a device allocation, or is freed already, BeginFree() reports it and returns
// cudaErrorInvalidValue. `device`, if not null, receives the allocation's device.
cudaError_t BeginFree(void* data, absl::string_view call, int* device);
// A stream calls this when it reaches the free. If no stream has reached the allocation, reports
// that.
void ReachFree(void* data);
void FinishFree(void* data);

inline constexpr int kAnyDevice = -1;

// Checks that [data, data + bytes) lies within one allocation of `space` that isn't freed and, if
// it is on a device, is on `device`. If not, prints a report that names `call`, and returns
// cudaErrorInvalidValue.
cudaError_t CheckMemory(const void* data, size_t bytes, Space space, absl::string_view call,
                        int device = kAnyDevice);

// Returns whether work on `device` may access the allocation at `data`: the allocation is on that
// device, or in a pool that gives the device access. Returns true if there is no allocation at
// `data`.
bool IsAccessible(const void* data, int device);

// Returns the address that a kernel on `device` gets for the pointer `data`. If `data` is a device
// address and the device may access the memory now, returns the backing address. Otherwise returns
// `data`; if that is a device address, an access faults.
void* KernelAddress(const void* data, int device);

// Describes what is at an address, for reports: "in freed memory of device 0".
std::string DescribeAddress(const void* device_address);

}  // namespace tensord::cuda_emulation
