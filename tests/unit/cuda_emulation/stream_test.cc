#include <gmock/gmock.h>

#include "tensord/tests/unit/cuda_emulation/emulation_fixture.h"
#include "tensord/tests/unit/cuda_emulation/test_kernels.h"

namespace tensord::cuda_emulation {
namespace {

using testing::Each;

class StreamEmulationTest : public EmulationTest {};

TEST_F(StreamEmulationTest, RunsTasksOfOneStreamInOrder) {
  int* data = MakeInts(8, 0);
  {
    const StreamBlocker blocker(first_);
    for (int value = 1; value <= 3; ++value) {
      EXPECT_EQ(LaunchFill(data, 8, value, first_), cudaSuccess);
    }
    EXPECT_EQ(cudaStreamQuery(first_), cudaErrorNotReady);
  }
  EXPECT_THAT(Download(data, 8, first_), Each(3));
  EXPECT_EQ(cudaStreamQuery(first_), cudaSuccess);
  EXPECT_EQ(cudaFree(data), cudaSuccess);
}

TEST_F(StreamEmulationTest, ABlockedStreamDoesNotBlockOthers) {
  int* data = MakeInts(8, 0);
  StreamBlocker blocker(first_);
  EXPECT_EQ(LaunchFill(data, 8, 1, first_), cudaSuccess);
  EXPECT_THAT(Download(data, 8, second_), Each(0));
  blocker.Release();
  EXPECT_EQ(cudaStreamSynchronize(first_), cudaSuccess);
  EXPECT_THAT(Download(data, 8, second_), Each(1));
  EXPECT_EQ(cudaFree(data), cudaSuccess);
}

TEST_F(StreamEmulationTest, SynchronizingTheDeviceWaitsForItsStreams) {
  int* data = MakeInts(8, 0);
  TheOptions().max_delay_us = 2000;
  EXPECT_EQ(LaunchFill(data, 4, 1, first_), cudaSuccess);
  EXPECT_EQ(LaunchFill(data + 4, 4, 2, second_), cudaSuccess);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  EXPECT_EQ(cudaStreamQuery(first_), cudaSuccess);
  EXPECT_EQ(cudaStreamQuery(second_), cudaSuccess);
  EXPECT_THAT(Download(data, 8, first_), testing::ElementsAre(1, 1, 1, 1, 2, 2, 2, 2));
  EXPECT_EQ(cudaFree(data), cudaSuccess);
}

TEST_F(StreamEmulationTest, ReportsTheDefaultStreamAsNotEmulated) {
  EXPECT_EQ(LaunchFill(nullptr, 1, 1, nullptr), cudaErrorNotSupported);
  EXPECT_TRUE(HasNewReports());
}

}  // namespace
}  // namespace tensord::cuda_emulation
