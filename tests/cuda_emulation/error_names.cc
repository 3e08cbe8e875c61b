// Names of errors: those that the emulation returns, and those that the backend's tests name.
#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <nvrtc.h>

// One case of a switch.
#define TENSORD_NAME(value) \
  case value:               \
    return #value

extern "C" {

const char* cudaGetErrorName(cudaError_t error) {
  switch (error) {
    TENSORD_NAME(cudaSuccess);
    TENSORD_NAME(cudaErrorECCUncorrectable);
    TENSORD_NAME(cudaErrorHostMemoryAlreadyRegistered);
    TENSORD_NAME(cudaErrorHostMemoryNotRegistered);
    TENSORD_NAME(cudaErrorIllegalAddress);
    TENSORD_NAME(cudaErrorIllegalState);
    TENSORD_NAME(cudaErrorInsufficientDriver);
    TENSORD_NAME(cudaErrorInvalidConfiguration);
    TENSORD_NAME(cudaErrorInvalidDevice);
    TENSORD_NAME(cudaErrorInvalidDeviceFunction);
    TENSORD_NAME(cudaErrorInvalidKernelImage);
    TENSORD_NAME(cudaErrorInvalidResourceHandle);
    TENSORD_NAME(cudaErrorInvalidValue);
    TENSORD_NAME(cudaErrorLaunchFailure);
    TENSORD_NAME(cudaErrorMemoryAllocation);
    TENSORD_NAME(cudaErrorNoDevice);
    TENSORD_NAME(cudaErrorNotReady);
    TENSORD_NAME(cudaErrorNotSupported);
    TENSORD_NAME(cudaErrorStreamCaptureInvalidated);
    TENSORD_NAME(cudaErrorStreamCaptureUnsupported);
    TENSORD_NAME(cudaErrorSymbolNotFound);
    TENSORD_NAME(cudaErrorUnknown);
    default:
      return "cudaError of another kind";
  }
}

const char* cudaGetErrorString(cudaError_t error) {
  return error == cudaSuccess ? "no error" : "returned by the CUDA emulation";
}

const char* cublasLtGetStatusName(cublasStatus_t status) {
  switch (status) {
    TENSORD_NAME(CUBLAS_STATUS_SUCCESS);
    TENSORD_NAME(CUBLAS_STATUS_ALLOC_FAILED);
    TENSORD_NAME(CUBLAS_STATUS_EXECUTION_FAILED);
    TENSORD_NAME(CUBLAS_STATUS_INTERNAL_ERROR);
    TENSORD_NAME(CUBLAS_STATUS_INVALID_VALUE);
    TENSORD_NAME(CUBLAS_STATUS_NOT_INITIALIZED);
    TENSORD_NAME(CUBLAS_STATUS_NOT_SUPPORTED);
    default:
      return "cublasStatus_t of another kind";
  }
}

const char* cublasLtGetStatusString(cublasStatus_t /*status*/) {
  return "returned by the CUDA emulation";
}

const char* nvrtcGetErrorString(nvrtcResult result) {
  switch (result) {
    TENSORD_NAME(NVRTC_SUCCESS);
    TENSORD_NAME(NVRTC_ERROR_COMPILATION);
    TENSORD_NAME(NVRTC_ERROR_INTERNAL_ERROR);
    default:
      return "nvrtcResult of another kind";
  }
}

}  // extern "C"
