// The epilogue of linear for 16-bit dtypes whose product is stored as float32:
//   out = round(activation(product + bias)), (m, n) + (n) -> (m, n)
// The result is rounded once, after the activation.
#pragma once

#include <cuda_runtime_api.h>

#include <optional>

#include "tensord/server/device/cuda/kernels/dispatch.h"
#include "tensord/server/device/cuda/kernels/strided_loop.h"

namespace tensord::server::cuda {

// All pointers are to memory of the stream's device. The caller keeps the memory until the kernel
// has run.
struct LinearEpilogueJob {
  const float* product = nullptr;  // (m, n), dense
  const void* bias = nullptr;      // (n), of out's dtype; null if there is no bias
  void* out = nullptr;             // (m, n), dense, float16 or bfloat16
  StridedLoop<1> loop;             // over (m, n), with bias's strides: 0 along m, 1 along n
};
// Enqueues the kernel on `stream`. Returns the error of the launch.
using LinearEpilogueLauncher = cudaError_t (*)(const LinearEpilogueJob& job, cudaStream_t stream);

// Returns null if `activation` is no activation of linear, or the dtype of the result isn't float16
// or bfloat16. nullopt: no activation.
LinearEpilogueLauncher FindLinearEpilogue(std::optional<UnaryFunction> activation,
                                          int dtype_number);

}  // namespace tensord::server::cuda
