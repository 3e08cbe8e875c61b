// Host memory that cudaHostRegister() has registered.
#pragma once

#include <cstddef>

namespace tensord::cuda_emulation {

// Returns whether [data, data + bytes) lies in one registered range. Thread-safe.
bool IsRegistered(const void* data, size_t bytes);

// cudaDeviceReset() calls this: drops the registrations that were made with `device` current.
void DropRegistrations(int device);

}  // namespace tensord::cuda_emulation
