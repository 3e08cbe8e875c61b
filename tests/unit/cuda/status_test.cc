// How errors of CUDA, cuBLASLt and cuDNN are mapped to Status codes.
#include "tensord/server/device/cuda/cuda_status.h"

#include <gmock/gmock.h>

#include "tensord/server/device/cuda/cudnn_library.h"

namespace tensord::server::cuda {
namespace {

using absl::StatusCode;

TEST(CudaStatusTest, MapsCudaErrorsToCodes) {
  const struct {
    cudaError_t error;
    StatusCode code;
  } cases[] = {{cudaSuccess, StatusCode::kOk},
               {cudaErrorMemoryAllocation, StatusCode::kResourceExhausted},
               {cudaErrorNoDevice, StatusCode::kUnavailable},
               {cudaErrorInsufficientDriver, StatusCode::kUnavailable},
               {cudaErrorNoKernelImageForDevice, StatusCode::kFailedPrecondition},
               {cudaErrorIllegalAddress, StatusCode::kDataLoss},
               {cudaErrorECCUncorrectable, StatusCode::kDataLoss},
               {cudaErrorNotSupported, StatusCode::kUnimplemented},
               {cudaErrorInvalidValue, StatusCode::kInternal}};
  for (const auto& [error, code] : cases) {
    const absl::Status status = CudaStatus(error, "cudaMalloc(&data, bytes)");
    EXPECT_EQ(status.code(), code) << status;
    if (status.ok()) continue;
    EXPECT_THAT(std::string(status.message()), testing::StartsWith("cudaMalloc failed: cudaError"));
  }
}

TEST(CudaStatusTest, MapsCublasErrorsToCodes) {
  const struct {
    cublasStatus_t error;
    StatusCode code;
  } cases[] = {{CUBLAS_STATUS_ALLOC_FAILED, StatusCode::kResourceExhausted},
               {CUBLAS_STATUS_NOT_SUPPORTED, StatusCode::kUnimplemented},
               {CUBLAS_STATUS_ARCH_MISMATCH, StatusCode::kFailedPrecondition},
               {CUBLAS_STATUS_EXECUTION_FAILED, StatusCode::kDataLoss},
               {CUBLAS_STATUS_INVALID_VALUE, StatusCode::kInternal}};
  for (const auto& [error, code] : cases) {
    const absl::Status status = CublasStatus(error, "cublasLtMatmul(handle)");
    EXPECT_EQ(status.code(), code) << status;
    EXPECT_THAT(std::string(status.message()), testing::StartsWith("cublasLtMatmul failed: "));
  }
}

TEST(CudaStatusTest, MapsCudnnErrorsToCodes) {
  CudnnLibrary library;
  library.GetErrorString = [](cudnn::Status) { return "text"; };
  const struct {
    int error;
    StatusCode code;
  } cases[] = {{1001, StatusCode::kInternal},          {2004, StatusCode::kInternal},
               {3000, StatusCode::kUnimplemented},     {3007, StatusCode::kUnimplemented},
               {4000, StatusCode::kInternal},          {4003, StatusCode::kResourceExhausted},
               {4004, StatusCode::kResourceExhausted}, {5001, StatusCode::kDataLoss}};
  EXPECT_TRUE(library.ToStatus(cudnn::Status::kSuccess, "cudnnCreate").ok());
  for (const auto& [error, code] : cases) {
    const absl::Status status = library.ToStatus(static_cast<cudnn::Status>(error), "cudnnCreate");
    EXPECT_EQ(status.code(), code) << status;
    EXPECT_THAT(std::string(status.message()), testing::StartsWith("cudnnCreate failed: text ("));
  }
}

}  // namespace
}  // namespace tensord::server::cuda
