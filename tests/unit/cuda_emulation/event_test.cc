#include <gmock/gmock.h>

#include "tensord/tests/unit/cuda_emulation/emulation_fixture.h"
#include "tensord/tests/unit/cuda_emulation/test_kernels.h"

namespace tensord::cuda_emulation {
namespace {

using testing::Each;

class EventEmulationTest : public EmulationTest {
 protected:
  void SetUp() override {
    EmulationTest::SetUp();
    ASSERT_EQ(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming), cudaSuccess);
  }
  void TearDown() override {
    cudaEventDestroy(event_);
    EmulationTest::TearDown();
  }

  cudaEvent_t event_ = nullptr;
};

TEST_F(EventEmulationTest, OrdersTwoStreams) {
  int* data = MakeInts(8, 0);
  {
    const StreamBlocker blocker(first_);
    EXPECT_EQ(LaunchFill(data, 8, 1, first_), cudaSuccess);
    EXPECT_EQ(cudaEventRecord(event_, first_), cudaSuccess);
    EXPECT_EQ(cudaStreamWaitEvent(second_, event_, 0), cudaSuccess);
    EXPECT_EQ(LaunchFill(data, 8, 2, second_), cudaSuccess);
    EXPECT_EQ(cudaEventQuery(event_), cudaErrorNotReady);
    EXPECT_EQ(cudaStreamQuery(second_), cudaErrorNotReady);
  }
  EXPECT_EQ(cudaEventSynchronize(event_), cudaSuccess);
  EXPECT_THAT(Download(data, 8, second_), Each(2));
  EXPECT_EQ(cudaFree(data), cudaSuccess);
}

TEST_F(EventEmulationTest, WaitsForTheLastRecordBeforeTheWait) {
  EXPECT_EQ(cudaEventRecord(event_, first_), cudaSuccess);
  EXPECT_EQ(cudaStreamWaitEvent(second_, event_, 0), cudaSuccess);
  const StreamBlocker blocker(first_);
  EXPECT_EQ(cudaEventRecord(event_, first_), cudaSuccess);
  EXPECT_EQ(cudaStreamSynchronize(second_), cudaSuccess);  // doesn't wait for the second record
  EXPECT_EQ(cudaEventQuery(event_), cudaErrorNotReady);
}

TEST_F(EventEmulationTest, AnEventThatWasNotRecordedIsComplete) {
  EXPECT_EQ(cudaEventQuery(event_), cudaSuccess);
  EXPECT_EQ(cudaEventSynchronize(event_), cudaSuccess);
  EXPECT_EQ(cudaStreamWaitEvent(first_, event_, 0), cudaSuccess);
}

TEST_F(EventEmulationTest, RejectsAnEventOfAnotherDevice) {
  ASSERT_EQ(cudaSetDevice(1), cudaSuccess);
  cudaEvent_t other = nullptr;
  ASSERT_EQ(cudaEventCreateWithFlags(&other, cudaEventDisableTiming), cudaSuccess);
  EXPECT_EQ(cudaEventRecord(other, first_), cudaErrorInvalidResourceHandle);
  EXPECT_TRUE(HasNewReports());
  EXPECT_EQ(cudaEventDestroy(other), cudaSuccess);
}

}  // namespace
}  // namespace tensord::cuda_emulation
