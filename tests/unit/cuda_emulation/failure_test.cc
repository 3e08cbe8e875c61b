#include "tensord/tests/cuda_emulation/failure.h"

#include <cublasLt.h>
#include <gmock/gmock.h>

#include "tensord/tests/unit/cuda_emulation/emulation_fixture.h"
#include "tensord/tests/unit/cuda_emulation/test_kernels.h"

namespace tensord::cuda_emulation {
namespace {

class FailureEmulationTest : public EmulationTest {
 protected:
  cudaError_t Allocate() {
    void* data = nullptr;
    const cudaError_t error = cudaMalloc(&data, 32);
    cudaFree(data);
    return error;
  }
};

TEST_F(FailureEmulationTest, FailsTheChosenCalls) {
  InjectFailure({"allocation", 2, cudaErrorMemoryAllocation, /*times=*/2});
  EXPECT_EQ(Allocate(), cudaSuccess);
  EXPECT_EQ(InjectedFailures(), 0);
  EXPECT_EQ(Allocate(), cudaErrorMemoryAllocation);
  EXPECT_EQ(cudaGetLastError(), cudaErrorMemoryAllocation);
  EXPECT_EQ(Allocate(), cudaErrorMemoryAllocation);
  EXPECT_EQ(InjectedFailures(), 2);
  EXPECT_EQ(Allocate(), cudaSuccess);
  EXPECT_EQ(UsedBytes(0), 0);
  cudaGetLastError();
}

TEST_F(FailureEmulationTest, CountsOnlyCallsOfTheKind) {
  InjectFailure({"launch", 1, cudaErrorInvalidConfiguration});
  EXPECT_EQ(Allocate(), cudaSuccess);
  EXPECT_EQ(LaunchFill(nullptr, 0, 0, first_), cudaErrorInvalidConfiguration);
  EXPECT_EQ(LaunchFill(nullptr, 0, 0, first_), cudaSuccess);
  cudaGetLastError();
}

TEST_F(FailureEmulationTest, AStickyErrorStaysUntilTheDeviceIsReset) {
  InjectFailure({"cudaStreamSynchronize", 1, cudaErrorECCUncorrectable});
  EXPECT_EQ(cudaStreamSynchronize(first_), cudaErrorECCUncorrectable);
  EXPECT_EQ(Allocate(), cudaErrorECCUncorrectable);
  ResetDevice();
  EXPECT_EQ(Allocate(), cudaSuccess);
}

TEST_F(FailureEmulationTest, FailsCallsOfOtherLibraries) {
  InjectFailure({"cublasLtCreate", 1, CUBLAS_STATUS_ALLOC_FAILED});
  cublasLtHandle_t handle = nullptr;
  EXPECT_EQ(cublasLtCreate(&handle), CUBLAS_STATUS_ALLOC_FAILED);
  EXPECT_EQ(cublasLtCreate(&handle), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(cublasLtDestroy(handle), CUBLAS_STATUS_SUCCESS);
}

}  // namespace
}  // namespace tensord::cuda_emulation
