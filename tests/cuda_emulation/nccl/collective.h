// A collective operation of one rank: its checks, and its task in the stream.
#pragma once

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <memory>

#include "tensord/tests/cuda_emulation/nccl/communicator.h"
#include "tensord/tests/cuda_emulation/nccl/operation.h"

namespace tensord::nccl_emulation {

// Starts `op` without blocking: returns ncclInProgress, and the communicator's thread enqueues the
// task. If the call is a misuse, reports it, fails the communicator and returns the error.
//
// The task sends `input` to the hub, receives the output, and writes it to `output`. If there is no
// output, the task fills `output` with a pattern after a delay (TENSORD_EMULATED_MAX_DELAY_US),
// because NCCL's kernel may still write after an abort.
ncclResult_t StartCollective(const std::shared_ptr<Communicator>& communicator, const Operation& op,
                             const void* input, void* output, cudaStream_t stream);

}  // namespace tensord::nccl_emulation
