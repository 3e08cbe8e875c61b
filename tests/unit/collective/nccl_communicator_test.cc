// How members of a group on GPUs wait for kernels and for each other, and end.
#include <gmock/gmock.h>

#include <chrono>
#include <future>
#include <string>
#include <thread>

#include "tensord/tests/unit/collective/nccl_communicator_fixture.h"

namespace tensord::server {
namespace {

using testing::HasSubstr;

TEST_F(NcclCommunicatorTest, AllReducesOverThreeGpus) {
  Connect(3, std::chrono::seconds(30));
  for (int i = 0; i < 10; ++i) {
    float sums[3] = {};
    for (const absl::Status& status :
         AtOnce({0, 1, 2}, [&](int rank) { return AllReduce(rank, &sums[rank]); })) {
      ASSERT_TRUE(status.ok()) << status;
    }
    EXPECT_THAT(sums, testing::Each(6));
  }
}

// A training step, for example, sums gradients while kernels compute the next ones.
TEST_F(NcclCommunicatorTest, AllReducesWhileKernelsRun) {
  Connect(2, std::chrono::seconds(30));
  auto occupied = OccupyComputeStreams(2);
  auto sums = StartAllReduce();
  for (auto& sum : sums) {
    EXPECT_EQ(sum.wait_for(std::chrono::minutes(1)), std::future_status::ready);
  }
  occupied.clear();
  for (auto& sum : sums) EXPECT_TRUE(sum.get().ok());
}

// Kernels used the result's memory last, so NCCL must write to it after them.
TEST_F(NcclCommunicatorTest, WaitsForKernelsThatUsedTheMemoryOfTheResult) {
  Connect(2, std::chrono::seconds(30));
  output_use_ = FirstUse::kKernel;
  auto occupied = OccupyComputeStreams(2);
  auto sums = StartAllReduce();
  for (auto& sum : sums) {
    EXPECT_EQ(sum.wait_for(std::chrono::milliseconds(100)), std::future_status::timeout);
  }
  occupied.clear();
  for (auto& sum : sums) EXPECT_TRUE(sum.get().ok());
}

TEST_F(NcclCommunicatorTest, AllReducesIntoMemoryOfTheComputeStream) {
  Connect(2, std::chrono::seconds(30));
  input_use_ = output_use_ = FirstUse::kKernel;
  cuda_emulation::TheOptions().max_delay_us = 2000;
  for (int i = 0; i < 20; ++i) {
    float sums[2] = {};
    for (const absl::Status& status :
         AtOnce({0, 1}, [&](int rank) { return AllReduce(rank, &sums[rank]); })) {
      ASSERT_TRUE(status.ok()) << status;
    }
    EXPECT_THAT(sums, testing::Each(3));
  }
}

// The members free their buffers when the operation has failed. NCCL's kernels must have ended by
// then. The delay makes an emulated kernel write late: if it writes to freed memory, the emulation
// reports that.
TEST_F(NcclCommunicatorTest, MissingMemberCausesDeadlineExceededAtAllOthers) {
  cuda_emulation::TheOptions().max_delay_us = 20000;
  Connect(3, std::chrono::seconds(2));
  for (const absl::Status& status : AtOnce({0, 1}, [&](int rank) { return AllReduce(rank); })) {
    EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded) << status;
  }
}

TEST_F(NcclCommunicatorTest, MemberThatLeavesAbortsTheOthers) {
  cuda_emulation::TheOptions().max_delay_us = 20000;
  Connect(3, std::chrono::seconds(30));
  std::future<void> leaves = std::async(std::launch::async, [&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(200));  // the others wait by then
    members_[2].reset();
  });
  for (const absl::Status& status : AtOnce({0, 1}, [&](int rank) { return AllReduce(rank); })) {
    EXPECT_EQ(status.code(), absl::StatusCode::kAborted) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("rank 2"));
  }
  leaves.get();
}

TEST_F(NcclCommunicatorTest, LostGpuAbortsItsGroupAndCanJoinAnotherAfterItsReset) {
  // The server doesn't abort a communicator whose GPU was reset, so the emulated NCCL keeps its
  // eventfd.
  RecordProperty("keeps", "anon_inode:[eventfd]");
  Connect(2, std::chrono::seconds(30));
  std::future<absl::Status> restarted = std::async(std::launch::async, [&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(200));  // the member waits by then
    return BreakAndRestart(*devices_[0]->restartable());
  });
  const absl::Status status = AllReduce(0);
  EXPECT_EQ(status.code(), absl::StatusCode::kAborted) << status;
  const absl::Status back = restarted.get();
  ASSERT_TRUE(back.ok()) << back;
  EXPECT_EQ(members_[1]->Watch().code(), absl::StatusCode::kAborted);
  EXPECT_EQ(AllReduce(0).code(), absl::StatusCode::kAborted);
  Connect(2, std::chrono::seconds(30));
  float sums[2] = {};
  for (const absl::Status& again :
       AtOnce({0, 1}, [&](int rank) { return AllReduce(rank, &sums[rank]); })) {
    EXPECT_TRUE(again.ok()) << again;
  }
  EXPECT_THAT(sums, testing::Each(3));
}

TEST_F(NcclCommunicatorTest, RejectsTwoMembersOnOneGpu) {
  for (const absl::Status& status : ConnectOn({0, 0}, std::chrono::seconds(30))) {
    EXPECT_EQ(status.code(), absl::StatusCode::kAborted) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("same GPU"));
  }
  cuda_emulation::ExpectReports();
}

}  // namespace
}  // namespace tensord::server
