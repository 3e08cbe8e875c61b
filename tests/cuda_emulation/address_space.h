// Addresses of device memory. Each allocation has two: its device address, at which nothing is
// accessible, and its backing, at the same distance for all allocations. The backend knows the
// device address, so host code that reads or writes device memory faults. Launches replace device
// addresses among a kernel's arguments by backing addresses; copies do the same.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tensord::cuda_emulation {

size_t PageBytes();

// Returns whether `address` is in the part of the address space that device memory is taken from.
// Async-signal-safe.
bool IsDeviceAddress(const void* address);
// The same for the backing.
bool IsBackingAddress(const void* address);

// Returns the backing of a device address, and the reverse. Other addresses are returned unchanged.
// Async-signal-safe.
void* ToBacking(const void* device_address);
void* ToDeviceAddress(const void* backing);

// Reserves `bytes`, a multiple of PageBytes(), whose backing isn't accessible. Returns the device
// address; null if there is no more. Thread-safe.
char* ReserveAddresses(size_t bytes);
// Gives a range of ReserveAddresses() back. Its backing must not be accessible. Thread-safe.
void ReleaseAddresses(char* device_address, size_t bytes);

// Makes the backing of a range of pages accessible, filled with zeros. Returns false if the host
// has no more memory.
bool MakeAccessible(char* device_address, size_t bytes);
// Makes the backing inaccessible, and gives its pages back to the host.
void MakeInaccessible(char* device_address, size_t bytes);

}  // namespace tensord::cuda_emulation
