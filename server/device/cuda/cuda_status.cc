#include "tensord/server/device/cuda/cuda_status.h"

#include <cublasLt.h>

#include "absl/strings/str_cat.h"

namespace tensord::server::cuda {
namespace {

absl::StatusCode CodeOf(cudaError_t error) {
  switch (error) {
    case cudaErrorMemoryAllocation:
      return absl::StatusCode::kResourceExhausted;
    case cudaErrorNoDevice:
    case cudaErrorInsufficientDriver:
    case cudaErrorDevicesUnavailable:
    case cudaErrorSystemNotReady:
    case cudaErrorSystemDriverMismatch:
    case cudaErrorCompatNotSupportedOnDevice:
    case cudaErrorCudartUnloading:
      return absl::StatusCode::kUnavailable;
    case cudaErrorNoKernelImageForDevice:
    case cudaErrorUnsupportedPtxVersion:
    case cudaErrorInvalidKernelImage:
      return absl::StatusCode::kFailedPrecondition;
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchFailure:
    case cudaErrorLaunchTimeout:
    case cudaErrorIllegalInstruction:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorHardwareStackError:
    case cudaErrorAssert:
    case cudaErrorECCUncorrectable:
    case cudaErrorNvlinkUncorrectable:
    case cudaErrorExternalDevice:
    case cudaErrorMpsClientTerminated:
#if CUDART_VERSION >= 12080
    case cudaErrorContained:
    case cudaErrorTensorMemoryLeak:
#endif
      return absl::StatusCode::kDataLoss;
    case cudaErrorNotSupported:
      return absl::StatusCode::kUnimplemented;
    default:
      return absl::StatusCode::kInternal;
  }
}

absl::StatusCode CodeOf(cublasStatus_t error) {
  switch (error) {
    case CUBLAS_STATUS_ALLOC_FAILED:
      return absl::StatusCode::kResourceExhausted;
    case CUBLAS_STATUS_NOT_SUPPORTED:
      return absl::StatusCode::kUnimplemented;
    case CUBLAS_STATUS_ARCH_MISMATCH:
      return absl::StatusCode::kFailedPrecondition;
    case CUBLAS_STATUS_EXECUTION_FAILED:
      return absl::StatusCode::kDataLoss;
    default:
      return absl::StatusCode::kInternal;
  }
}

// Returns the text of a call without its arguments, which don't help a reader of the message.
absl::string_view FunctionName(absl::string_view call) { return call.substr(0, call.find('(')); }

}  // namespace

absl::Status CudaStatus(cudaError_t error, absl::string_view call) {
  if (error == cudaSuccess) return absl::OkStatus();
  cudaGetLastError();
  return absl::Status(CodeOf(error),
                      absl::StrCat(FunctionName(call), " failed: ", cudaGetErrorName(error), ": ",
                                   cudaGetErrorString(error)));
}

absl::Status CublasStatus(cublasStatus_t error, absl::string_view call) {
  if (error == CUBLAS_STATUS_SUCCESS) return absl::OkStatus();
  return absl::Status(CodeOf(error),
                      absl::StrCat(FunctionName(call), " failed: ", cublasLtGetStatusName(error),
                                   ": ", cublasLtGetStatusString(error)));
}

}  // namespace tensord::server::cuda
