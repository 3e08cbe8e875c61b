// The operations of groups as calls of NCCL.
#pragma once

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <cstdint>

#include "absl/status/status.h"
#include "tensord/server/communicator/collective_op.h"
#include "tensord/server/device/cuda/nccl_library.h"

namespace tensord::server {

// Calls the function of NCCL for `op`, which enqueues the operation on `stream`. `input` and
// `output` are addresses on the GPU. If the member has only one of the buffers, both are its
// address. `output_elements` is the size of `output`. Returns an error of the call. NCCL may report
// errors of the operation later. Does nothing for a barrier.
absl::Status EnqueueOperation(const NcclLibrary& nccl, const CollectiveOp& op, const void* input,
                              void* output, int64_t output_elements, ncclComm_t comm,
                              cudaStream_t stream);

}  // namespace tensord::server
