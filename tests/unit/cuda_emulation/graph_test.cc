#include <gmock/gmock.h>

#include "tensord/tests/unit/cuda_emulation/emulation_fixture.h"
#include "tensord/tests/unit/cuda_emulation/test_kernels.h"

namespace tensord::cuda_emulation {
namespace {

using testing::Each;

class GraphEmulationTest : public EmulationTest {
 protected:
  void BeginCapture() {
    ASSERT_EQ(cudaStreamBeginCapture(first_, cudaStreamCaptureModeRelaxed), cudaSuccess);
  }
};

TEST_F(GraphEmulationTest, EachLaunchRunsWhatWasCaptured) {
  int* data = MakeInts(8, 0);
  BeginCapture();
  EXPECT_EQ(LaunchFill(data, 8, 1, first_), cudaSuccess);
  EXPECT_EQ(cudaMemsetAsync(data, 0, sizeof(int), first_), cudaSuccess);
  cudaGraph_t graph = nullptr;
  ASSERT_EQ(cudaStreamEndCapture(first_, &graph), cudaSuccess);
  cudaGraphExec_t executable = nullptr;
  ASSERT_EQ(cudaGraphInstantiateWithFlags(&executable, graph, 0), cudaSuccess);
  EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
  EXPECT_THAT(Download(data, 8, second_), Each(0)) << "a captured kernel has run";
  for (int launch = 0; launch < 2; ++launch) {
    EXPECT_EQ(LaunchFill(data, 8, 7, second_), cudaSuccess);
    EXPECT_EQ(cudaGraphLaunch(executable, second_), cudaSuccess);
    EXPECT_THAT(Download(data, 8, second_), testing::ElementsAre(0, 1, 1, 1, 1, 1, 1, 1));
  }
  EXPECT_EQ(cudaGraphExecDestroy(executable), cudaSuccess);
  EXPECT_EQ(cudaFree(data), cudaSuccess);
}

TEST_F(GraphEmulationTest, SynchronizingTheStreamInvalidatesTheCapture) {
  BeginCapture();
  EXPECT_EQ(cudaStreamSynchronize(first_), cudaErrorStreamCaptureUnsupported);
  EXPECT_TRUE(HasNewReports());
  cudaGraph_t graph = nullptr;
  EXPECT_EQ(cudaStreamEndCapture(first_, &graph), cudaErrorStreamCaptureInvalidated);
  EXPECT_EQ(graph, nullptr);
  EXPECT_EQ(cudaStreamSynchronize(first_), cudaSuccess);
}

TEST_F(GraphEmulationTest, SynchronizingTheDeviceInvalidatesTheCapture) {
  BeginCapture();
  EXPECT_EQ(cudaDeviceSynchronize(), cudaErrorStreamCaptureUnsupported);
  EXPECT_TRUE(HasNewReports());
  cudaGraph_t graph = nullptr;
  EXPECT_EQ(cudaStreamEndCapture(first_, &graph), cudaErrorStreamCaptureInvalidated);
}

TEST_F(GraphEmulationTest, RejectsTheEndOfACaptureThatWasNotBegun) {
  cudaGraph_t graph = nullptr;
  EXPECT_EQ(cudaStreamEndCapture(first_, &graph), cudaErrorIllegalState);
}

}  // namespace
}  // namespace tensord::cuda_emulation
