// Converts errors of the CUDA runtime and of cuBLAS to Status. No other file does so.
#pragma once

#include <cublas_api.h>
#include <cuda_runtime_api.h>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace tensord::server::cuda {

// Returns OK, or a status with the function of `call`, and the error's name and text. Its code is:
//   UNAVAILABLE          there is no driver or no GPU, or the GPU can't be reached now
//   RESOURCE_EXHAUSTED   the GPU has too little memory
//   FAILED_PRECONDITION  the GPU is older than the GPUs that this program was compiled for
//   DATA_LOSS            a sticky error: a kernel failed and broke the context
//                        (cudaErrorIllegalAddress, …), or the GPU's memory or links failed. Until
//                        the device is reset, nothing runs on it and nothing can be read from it
//   UNIMPLEMENTED        the GPU or the driver doesn't support the call
//   INTERNAL             any other error
// Clears errors that aren't sticky in the runtime, so that no later call reports them again.
absl::Status CudaStatus(cudaError_t error, absl::string_view call);

// Does the same for errors of cuBLAS and cuBLASLt. DATA_LOSS means that a product's kernel failed.
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
