// Failures that tests inject: a chosen call of the runtime, cuBLASLt, NVRTC or NCCL fails.
#pragma once

#include <cstdint>
#include <string>

namespace tensord::cuda_emulation {

// The `at`-th to the (`at` + `times` - 1)-th call of the kind fail with `error`. Failing calls do
// nothing else.
struct Failure {
  // A function ("cudaEventRecord"), or one of
  //   "allocation"  cudaMalloc, cudaMallocFromPoolAsync, cudaHostAlloc
  //   "launch"      kernels, products of cuBLASLt, graphs
  //   "copy"        cudaMemcpyAsync, cudaMemcpyPeerAsync, cudaMemsetAsync
  //   "any"         every call but cudaEventQuery and cudaStreamQuery, whose number varies
  std::string call;
  int64_t at = 0;  // 1: the first. 0: none fails
  int error = 0;   // a value of the function's type. If it is sticky, the device keeps it
  int64_t times = 1;
};

// Injects a failure in place of the last one, and counts calls from now on. Without it the failure
// is that of the environment variable TENSORD_EMULATED_FAIL, which is CALL:AT:ERROR[:TIMES] with
// ERROR as a number, such as launch:3:700. Thread-safe.
void InjectFailure(Failure failure);

// Returns how many calls have failed because of the last InjectFailure(). Thread-safe.
int64_t InjectedFailures();

// Each emulated function calls this first. Returns the error that it must return; 0 if it must not
// fail. Thread-safe.
int CountCall(const char* call);

}  // namespace tensord::cuda_emulation
