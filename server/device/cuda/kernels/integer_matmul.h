// Matrix products of integers, which wrap around in their own dtype. No library has them.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "tensord/server/device/cuda/kernels/dispatch.h"
#include "tensord/server/device/cuda/kernels/strided_loop.h"

namespace tensord::server::cuda {

// For each item of `batch`: (m, k) · (k, n) -> (m, n). The operands have any strides, in elements.
// The output is dense, and its items lie one after another.
struct IntegerMatmulJob {
  const void* a = nullptr;
  const void* b = nullptr;
  void* out = nullptr;
  int64_t m = 0, n = 0, k = 0;
  int64_t a_row_stride = 0, a_column_stride = 0;
  int64_t b_row_stride = 0, b_column_stride = 0;
  StridedLoop<2> batch;  // strides of (a, b)
};
using IntegerMatmulLauncher = cudaError_t (*)(const IntegerMatmulJob& job, cudaStream_t stream);
const ByDType<IntegerMatmulLauncher>& IntegerMatmulLaunchers();

}  // namespace tensord::server::cuda
