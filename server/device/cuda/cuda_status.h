// Errors of the CUDA runtime and of cuBLAS as Status: the one place where they are turned.
#pragma once

#include <cublas_api.h>
#include <cuda_runtime_api.h>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace tensord::server::cuda {

// OK, or the error with the call that gave it, its name and its text:
//   UNAVAILABLE          no driver, no GPU, or none that can be reached now
//   RESOURCE_EXHAUSTED   the GPU's memory is
//   FAILED_PRECONDITION  the GPU is older than what this program was compiled for
//   DATA_LOSS            a sticky error: a kernel broke off and took the context with it
//                        (cudaErrorIllegalAddress, …), or the GPU's memory or links failed. Nothing
//                        runs on the device, nor can it be read, until it has been reset
//   UNIMPLEMENTED        the GPU or the driver can't do this
//   INTERNAL             anything else
// An error that doesn't last is taken from the runtime, so that no later call reports it again.
absl::Status CudaStatus(cudaError_t error, absl::string_view call);

// The same for cuBLAS and cuBLASLt.
absl::Status CublasStatus(cublasStatus_t error, absl::string_view call);

}  // namespace tensord::server::cuda

#define TENSORD_CUDA_RETURN_IF_ERROR(call)                                    \
  do {                                                                        \
    const cudaError_t tensord_cuda_error_ = (call);                           \
    if (tensord_cuda_error_ != cudaSuccess) [[unlikely]]                      \
      return ::tensord::server::cuda::CudaStatus(tensord_cuda_error_, #call); \
  } while (false)

#define TENSORD_CUBLAS_RETURN_IF_ERROR(call)                                      \
  do {                                                                            \
    const cublasStatus_t tensord_cublas_error_ = (call);                          \
    if (tensord_cublas_error_ != CUBLAS_STATUS_SUCCESS) [[unlikely]]              \
      return ::tensord::server::cuda::CublasStatus(tensord_cublas_error_, #call); \
  } while (false)
