// Objects that cudaDeviceReset() destroys can't be used afterwards.
#include <cublasLt.h>
#include <gmock/gmock.h>

#include "tensord/tests/unit/cuda_emulation/emulation_fixture.h"
#include "tensord/tests/unit/cuda_emulation/test_kernels.h"

namespace tensord::cuda_emulation {
namespace {

using testing::HasSubstr;

class ResetEmulationTest : public EmulationTest {
 protected:
  void ExpectReport(const char* text) {
    EXPECT_TRUE(HasNewReports());
    EXPECT_THAT(LastReport(), HasSubstr(text));
  }
};

TEST_F(ResetEmulationTest, RefusesStreams) {
  cudaStream_t old = first_, destroyed = second_;
  EXPECT_EQ(cudaStreamDestroy(destroyed), cudaSuccess);
  ResetDevice();
  EXPECT_EQ(cudaStreamSynchronize(old), cudaErrorInvalidResourceHandle);
  ExpectReport("a stream from before the reset of device 0");
  EXPECT_EQ(LaunchFill(nullptr, 1, 1, old), cudaErrorInvalidResourceHandle);
  ExpectReport("a stream from before the reset of device 0");
  EXPECT_EQ(cudaStreamDestroy(old), cudaErrorInvalidResourceHandle);
  ExpectReport("a stream from before the reset of device 0");
  EXPECT_EQ(cudaStreamQuery(destroyed), cudaErrorInvalidResourceHandle);
  ExpectReport("a stream that was destroyed");
}

TEST_F(ResetEmulationTest, RefusesEvents) {
  cudaEvent_t event = nullptr;
  ASSERT_EQ(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), cudaSuccess);
  ResetDevice();
  EXPECT_EQ(cudaEventRecord(event, first_), cudaErrorInvalidResourceHandle);
  ExpectReport("an event from before the reset");
  EXPECT_EQ(cudaStreamWaitEvent(first_, event, 0), cudaErrorInvalidResourceHandle);
  ExpectReport("an event from before the reset");
  EXPECT_EQ(cudaEventQuery(event), cudaErrorInvalidResourceHandle);
  ExpectReport("an event from before the reset");
  EXPECT_EQ(cudaEventSynchronize(event), cudaErrorInvalidResourceHandle);
  ExpectReport("an event from before the reset");
  EXPECT_EQ(cudaEventDestroy(event), cudaErrorInvalidResourceHandle);
  ExpectReport("an event from before the reset");
}

TEST_F(ResetEmulationTest, RefusesGraphs) {
  ASSERT_EQ(cudaStreamBeginCapture(first_, cudaStreamCaptureModeRelaxed), cudaSuccess);
  cudaGraph_t graph = nullptr;
  ASSERT_EQ(cudaStreamEndCapture(first_, &graph), cudaSuccess);
  cudaGraphExec_t executable = nullptr;
  ASSERT_EQ(cudaGraphInstantiateWithFlags(&executable, graph, 0), cudaSuccess);
  ResetDevice();
  EXPECT_EQ(cudaGraphLaunch(executable, first_), cudaErrorInvalidValue);
  ExpectReport("an executable graph from before the reset");
  EXPECT_EQ(cudaGraphExecDestroy(executable), cudaErrorInvalidValue);
  ExpectReport("an executable graph from before the reset");
  EXPECT_EQ(cudaGraphInstantiateWithFlags(&executable, graph, 0), cudaErrorInvalidValue);
  ExpectReport("a graph from before the reset");
  EXPECT_EQ(cudaGraphDestroy(graph), cudaErrorInvalidValue);
  ExpectReport("a graph from before the reset");
}

TEST_F(ResetEmulationTest, FreesMemoryExceptMemoryOfPools) {
  cudaMemPool_t pool = MakePool(0);
  int* of_pool = TakeFromPool(pool, 1000);
  int* data = MakeInts(8, 1);
  void* pinned = nullptr;
  ASSERT_EQ(cudaHostAlloc(&pinned, 32, cudaHostAllocDefault), cudaSuccess);
  ResetDevice();
  EXPECT_EQ(UsedBytes(0), 1000);
  EXPECT_EQ(cudaFree(data), cudaErrorInvalidValue);
  ExpectReport("is freed already");
  EXPECT_EQ(cudaFreeHost(pinned), cudaErrorInvalidValue);
  ExpectReport("is not the start of pinned host memory");
  EXPECT_EQ(LaunchFill(of_pool, 8, 1, first_), cudaSuccess);
  EXPECT_THAT(Download(of_pool, 8, first_), testing::Each(1));
  EXPECT_EQ(cudaFree(of_pool), cudaSuccess);
  EXPECT_EQ(cudaMemPoolDestroy(pool), cudaSuccess);
  EXPECT_EQ(UsedBytes(0), 0);
}

TEST_F(ResetEmulationTest, RefusesHandlesOfCublasLt) {
  cublasLtHandle_t handle = nullptr;
  ASSERT_EQ(cublasLtCreate(&handle), CUBLAS_STATUS_SUCCESS);
  ResetDevice();
  EXPECT_EQ(cublasLtDestroy(handle), CUBLAS_STATUS_NOT_INITIALIZED);
  ExpectReport("a handle of cuBLASLt from before the reset");
}

TEST_F(ResetEmulationTest, LeavesOtherDevicesAlone) {
  ASSERT_EQ(cudaSetDevice(1), cudaSuccess);
  EXPECT_EQ(cudaDeviceReset(), cudaSuccess);
  ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
  EXPECT_EQ(cudaStreamSynchronize(first_), cudaSuccess);
}

TEST_F(ResetEmulationTest, QueuedWorkDoesNotRun) {
  cudaMemPool_t pool = MakePool(0);
  int* data = TakeFromPool(pool, 8 * sizeof(int));
  EXPECT_EQ(LaunchFill(data, 8, 1, first_), cudaSuccess);
  EXPECT_EQ(cudaStreamSynchronize(first_), cudaSuccess);
  {
    const StreamBlocker blocker(first_);
    EXPECT_EQ(LaunchFill(data, 8, 2, first_), cudaSuccess);
    ResetDevice();
  }
  EXPECT_THAT(Download(data, 8, first_), testing::Each(1));
  EXPECT_EQ(cudaFree(data), cudaSuccess);
  EXPECT_EQ(cudaMemPoolDestroy(pool), cudaSuccess);
}

TEST_F(ResetEmulationTest, LiveObjectsAreListed) {
  EXPECT_THAT(LiveObjects(), HasSubstr("2 streams"));
  int* data = MakeInts(8, 1);
  EXPECT_THAT(LiveObjects(), HasSubstr("32 bytes of device memory"));
  EXPECT_EQ(cudaFree(data), cudaSuccess);
  EXPECT_EQ(LiveObjects(), "2 streams");
}

}  // namespace
}  // namespace tensord::cuda_emulation
