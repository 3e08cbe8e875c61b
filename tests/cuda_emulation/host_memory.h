// Host memory that cudaHostRegister() has registered.
#pragma once

#include <cstddef>

namespace tensord::cuda_emulation {

// Returns whether [data, data + bytes) lies in one registered range. Thread-safe.
bool IsRegistered(const void* data, size_t bytes);

// Called by cudaDeviceReset(). Removes the registrations that were made while `device` was current.
void DropRegistrations(int device);

}  // namespace tensord::cuda_emulation
