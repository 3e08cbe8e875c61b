// Launchers of pooling and its gradients.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <span>

#include "tensord/server/device/cuda/kernels/dispatch.h"
#include "tensord/server/device/pool_geometry.h"

namespace tensord::server::cuda {

struct PoolJob {
  PoolGeometry geometry;
  int64_t planes = 1;
  const void* from = nullptr;  // x, or the result's gradient
  void* to = nullptr;          // the result, or the gradient of x
  // Only for max_pool: a result, or an operand of the gradient.
  int64_t* indices = nullptr;
  // Only for avg_pool.
  bool count_padding = true;
  int64_t divisor = 0;  // 0: the number of elements of the window
};
using PoolLauncher = cudaError_t (*)(const PoolJob& job, cudaStream_t stream);

struct PoolKernel {
  const char* op;
  ByDType<PoolLauncher> by_dtype;
};
std::span<const PoolKernel> PoolKernels();  // max_pool, avg_pool and their gradients

}  // namespace tensord::server::cuda
