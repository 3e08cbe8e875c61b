// The launchers of cells of recurrent layers.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "tensord/server/device/cuda/kernels/dispatch.h"
#include "tensord/server/device/recurrent_math.h"

namespace tensord::server::cuda {

// The parts of the operands and results of recurrent_math.h. Row n of a part begins `stride · n`
// elements after its address.
struct CellJob {
  const void* in[kMaxCellInputs] = {};
  int64_t in_strides[kMaxCellInputs] = {};
  void* out[kMaxCellOutputs] = {};
  int64_t out_strides[kMaxCellOutputs] = {};
  int64_t rows = 0;
  int64_t size = 0;  // of a row of a part
};
using CellLauncher = cudaError_t (*)(const CellJob& job, cudaStream_t stream);

// The launchers of a cell without and with the operands that a call may leave out.
struct CellLaunchers {
  ByDType<CellLauncher> variants[2];
};
CellLaunchers LstmCellKernels();
CellLaunchers LstmGatesBackwardKernels();
CellLaunchers GruCellKernels();
CellLaunchers GruGatesBackwardKernels();

}  // namespace tensord::server::cuda
