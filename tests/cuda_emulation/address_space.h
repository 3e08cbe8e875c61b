// Addresses of device memory. Each allocation has two addresses:
//   - The device address. The backend gets this address. The memory there is never accessible, so
//     host code that reads or writes device memory faults.
//   - The backing address. The contents of the allocation are there. The difference between the two
//     addresses is the same for all allocations.
// Launches replace the device addresses in a kernel's arguments by backing addresses. Copies do the
// same with their operands.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tensord::cuda_emulation {

size_t PageBytes();

// Returns whether `address` is in the range that is reserved for device addresses.
// Async-signal-safe.
bool IsDeviceAddress(const void* address);
// Returns whether `address` is in the range that is reserved for backing addresses.
bool IsBackingAddress(const void* address);

// Converts a device address to its backing address, and the reverse. Returns other addresses
// unchanged. Async-signal-safe.
void* ToBacking(const void* device_address);
void* ToDeviceAddress(const void* backing);

// Reserves a range of `bytes`, a multiple of PageBytes(). Its backing isn't accessible. Returns the
// device address. Returns null if no range is large enough. Thread-safe.
char* ReserveAddresses(size_t bytes);
// Releases a range that ReserveAddresses() returned. The backing must not be accessible.
// Thread-safe.
void ReleaseAddresses(char* device_address, size_t bytes);

// Makes the backing of a range of whole pages accessible. The backing holds zeros. Returns false if
// the host is out of memory.
bool MakeAccessible(char* device_address, size_t bytes);
// Makes the backing of a range of whole pages inaccessible, and returns its pages to the host.
void MakeInaccessible(char* device_address, size_t bytes);

}  // namespace tensord::cuda_emulation
