// Unsigned integers of a given size, for kernels that move elements and don't interpret them.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace tensord::server::cuda {

// Calls `f` with a value of the unsigned type that has `unit_bytes` bytes, and returns its result.
// If there is no such type, returns cudaErrorInvalidValue.
template <typename F>
cudaError_t WithUnit(int unit_bytes, F f) {
  switch (unit_bytes) {
    case 1:
      return f(uint8_t{});
    case 2:
      return f(uint16_t{});
    case 4:
      return f(uint32_t{});
    case 8:
      return f(uint64_t{});
    default:
      return cudaErrorInvalidValue;
  }
}

}  // namespace tensord::server::cuda
