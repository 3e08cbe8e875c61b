// Error injection for tests: makes chosen calls of the CUDA runtime, cuBLASLt, cuDNN, NVRTC or NCCL
// fail.
#pragma once

#include <cstdint>
#include <string>

namespace tensord::cuda_emulation {

// Makes the calls number `at` to `at` + `times` - 1 that match `call` return `error`. A call that
// fails has no other effect, except that cudaStreamEndCapture() ends the capture.
struct Failure {
  // The name of a function, such as "cudaEventRecord", or one of
  //   "allocation"  cudaMalloc, cudaMallocFromPoolAsync, cudaHostAlloc
  //   "launch"      kernel launches, cublasLtMatmul, cudnnBackendExecute, cudaGraphLaunch
  //   "copy"        cudaMemcpyAsync, cudaMemcpyPeerAsync, cudaMemsetAsync
  //   "any"         all calls except cudaEventQuery and cudaStreamQuery: how often the backend
  //                 polls varies from run to run
  std::string call;
  int64_t at = 0;  // 1: the first matching call. 0: no call fails
  // A value of the function's return type. If CUDA documents it as sticky, the device keeps it.
  int error = 0;
  int64_t times = 1;
};

// Replaces the injected failure, and restarts counting at 0. Before the first call, the environment
// variable TENSORD_EMULATED_FAIL sets the failure. Its form is CALL:AT:ERROR[:TIMES], with ERROR as
// a number, such as launch:3:700. Thread-safe.
void InjectFailure(Failure failure);

// Returns how many calls the current injection has made fail. Thread-safe.
int64_t InjectedFailures();

// Counts a call of `call`. Returns the error that the caller must return, or 0 if the caller must
// not fail. Emulated functions call this before they do their work. These functions don't, and
// never fail by injection: cudaGetLastError, cudaGetDevice, cudaFreeHost, and functions that
// destroy, unload or abort an object, or return a version or a text. Thread-safe.
int CountCall(const char* call);

}  // namespace tensord::cuda_emulation
