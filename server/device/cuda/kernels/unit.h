// Unsigned integers by their size, for kernels that move elements without looking at them.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace tensord::server::cuda {

// Calls `f` with a value of the unit's type.
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
