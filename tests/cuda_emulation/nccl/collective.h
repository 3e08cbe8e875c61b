// A collective operation of one rank: its checks, and its task in the stream.
#pragma once

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <memory>

#include "tensord/tests/cuda_emulation/nccl/communicator.h"
#include "tensord/tests/cuda_emulation/nccl/operation.h"

namespace tensord::nccl_emulation {

// Starts `op` as a call of a nonblocking communicator does: returns ncclInProgress, and the
// communicator's thread enqueues the task. If the call is wrong, reports that, fails the
// communicator and returns the error.
//
// The task reads `input`, exchanges it for the output, and writes that to `output`. If there is no
// output, the task fills `output` with a pattern; after an abort it does so with a delay
// (TENSORD_EMULATED_MAX_DELAY_US), as a kernel may write until it ends.
ncclResult_t StartCollective(const std::shared_ptr<Communicator>& communicator, const Operation& op,
                             const void* input, void* output, cudaStream_t stream);

}  // namespace tensord::nccl_emulation
