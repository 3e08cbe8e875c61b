// Checks whether this program has kernels for a GPU.
#pragma once

#include <cuda_runtime_api.h>

namespace tensord::server::cuda {

// Returns cudaSuccess if the current device can run this program's kernels. Otherwise returns the
// error and clears it in the runtime.
cudaError_t ProbeKernels();

}  // namespace tensord::server::cuda
