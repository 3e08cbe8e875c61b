// The launchers of what follows a linear layer's product of 16-bit operands, if that was stored as
// float32: bias, activation, and one rounding.
#pragma once

#include <cuda_runtime_api.h>

#include <span>

#include "tensord/server/device/cuda/kernels/dispatch.h"
#include "tensord/server/device/cuda/kernels/strided_loop.h"

namespace tensord::server::cuda {

struct LinearEpilogueJob {
  const float* product = nullptr;  // dense, of loop.size elements
  const void* bias = nullptr;      // null: there is none
  void* out = nullptr;             // dense; of the table's dtype, as the bias
  StridedLoop<1> loop;             // with the bias's strides
};
using LinearEpilogueLauncher = cudaError_t (*)(const LinearEpilogueJob& job, cudaStream_t stream);

struct LinearEpilogueKernel {
  const char* activation;  // the attribute of linear
  ByDType<LinearEpilogueLauncher> by_dtype;
};
std::span<const LinearEpilogueKernel> LinearEpilogueKernels();

}  // namespace tensord::server::cuda
