// Elements of the libraries' data types.
#pragma once

#include <library_types.h>

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "tensord/common/float16.h"

namespace tensord::cuda_emulation {

inline size_t ElementBytes(cudaDataType_t type) {
  switch (type) {
    case CUDA_R_16F:
    case CUDA_R_16BF:
      return 2;
    case CUDA_R_32F:
      return 4;
    default:
      return 8;
  }
}

// Returns element i of an array of `type`: CUDA_R_16F, CUDA_R_16BF, CUDA_R_32F or CUDA_R_64F.
inline double Get(cudaDataType_t type, const void* data, int64_t i) {
  switch (type) {
    case CUDA_R_16F:
      return static_cast<const Half*>(data)[i];
    case CUDA_R_16BF:
      return static_cast<const BFloat16*>(data)[i];
    case CUDA_R_32F:
      return static_cast<const float*>(data)[i];
    default:
      return static_cast<const double*>(data)[i];
  }
}

// Rounds `value` to `type` and stores it as element i.
inline void Put(cudaDataType_t type, void* data, int64_t i, double value) {
  switch (type) {
    case CUDA_R_16F:
      static_cast<Half*>(data)[i] = Half(static_cast<float>(value));
      break;
    case CUDA_R_16BF:
      static_cast<BFloat16*>(data)[i] = BFloat16(static_cast<float>(value));
      break;
    case CUDA_R_32F:
      static_cast<float*>(data)[i] = static_cast<float>(value);
      break;
    default:
      static_cast<double*>(data)[i] = value;
  }
}

// Rounds to 10 bits of mantissa, ties away from zero.
inline float RoundToTf32(float value) {
  if (!std::isfinite(value)) return value;
  return std::bit_cast<float>((std::bit_cast<uint32_t>(value) + 0x1000u) & ~0x1fffu);
}

}  // namespace tensord::cuda_emulation
