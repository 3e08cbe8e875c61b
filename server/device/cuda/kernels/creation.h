// Launchers of the kernels of ops without inputs.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "tensord/server/device/cuda/kernels/dispatch.h"

namespace tensord::server::cuda {

// An element of 1, 2, 4, 8 or 16 bytes. `bits` are its low bytes. Bytes past the eighth are 0.
struct ElementBits {
  uint64_t bits = 0;
  int bytes = 0;
};

// out[i * pitch] = value, 0 <= i < size.
cudaError_t LaunchFill(void* out, ElementBits value, int64_t size, int64_t pitch,
                       cudaStream_t stream);

// out[i] = start + i * step, cast to the table's dtype. If `integral`, computed in int64, which
// wraps around, otherwise in double.
struct ArangeJob {
  bool integral = true;
  int64_t int_start = 0, int_step = 1;
  double float_start = 0, float_step = 1;
};
using ArangeLauncher = cudaError_t (*)(void* out, const ArangeJob& job, int64_t size,
                                       cudaStream_t stream);
const ByDType<ArangeLauncher>& ArangeLaunchers();

}  // namespace tensord::server::cuda
