// The launcher of a step of Adam.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "tensord/server/device/adam_numbers.h"
#include "tensord/server/device/cuda/kernels/dispatch.h"

namespace tensord::server::cuda {

struct AdamJob {
  AdamAttributes attributes;
  // A result may have the memory of the operand of the same name. vmax is null without amsgrad.
  const void *p = nullptr, *g = nullptr, *m = nullptr, *v = nullptr, *vmax = nullptr;
  void *p_out = nullptr, *m_out = nullptr, *v_out = nullptr, *vmax_out = nullptr;
  const double* step = nullptr;
  const double* lr = nullptr;
  int64_t size = 0;
};
using AdamLauncher = cudaError_t (*)(const AdamJob& job, cudaStream_t stream);
ByDType<AdamLauncher> AdamKernels();

}  // namespace tensord::server::cuda
