// Whether this program has kernels for a GPU.
#pragma once

#include <cuda_runtime_api.h>

namespace tensord::server::cuda {

// cudaSuccess where the current device can run what was compiled in.
cudaError_t ProbeKernels();

}  // namespace tensord::server::cuda
