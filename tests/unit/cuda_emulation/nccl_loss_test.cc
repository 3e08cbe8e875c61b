// Aborts and lost ranks of the emulated NCCL.
#include <gmock/gmock.h>

#include <vector>

#include "tensord/tests/unit/cuda_emulation/nccl_fixture.h"

namespace tensord::cuda_emulation {
namespace {

using testing::HasSubstr;

class NcclLossTest : public NcclEmulationTest {
 protected:
  static constexpr size_t kCount = 4;

  void SetUp() override {
    NcclEmulationTest::SetUp();
    Connect(3);
    for (const Rank& rank : ranks_) {
      memory_.push_back(Upload(rank.number, std::vector<float>(kCount, 1)));
    }
  }
  void TearDown() override {
    AbortAll();
    memory_.clear();
    NcclEmulationTest::TearDown();
  }

  void Start(Rank& rank) {
    ASSERT_EQ(cudaSetDevice(rank.number), cudaSuccess);
    char* data = memory_[rank.number].data();
    ASSERT_EQ(nccl_->AllReduce(data, data, kCount, ncclFloat32, ncclSum, rank.comm, rank.stream),
              ncclInProgress);
    ASSERT_EQ(Await(rank.comm), ncclSuccess);
  }
  void Abort(Rank& rank) {
    EXPECT_EQ(nccl_->CommAbort(rank.comm), ncclSuccess);
    rank.comm = nullptr;
  }
  std::vector<DeviceMemory> memory_;
};

TEST_F(NcclLossTest, LostRankGivesRemoteErrorsAndKernelsRunUntilAbort) {
  Start(ranks_[0]);
  Start(ranks_[1]);
  Abort(ranks_[2]);
  for (const int rank : {0, 1}) {
    EXPECT_EQ(AwaitError(ranks_[rank].comm), ncclRemoteError);
    EXPECT_THAT(nccl_->GetLastError(nullptr), HasSubstr("rank 2"));
    EXPECT_EQ(cudaStreamQuery(ranks_[rank].stream), cudaErrorNotReady);
  }
  for (const int rank : {0, 1}) {
    Abort(ranks_[rank]);
    EXPECT_EQ(cudaStreamSynchronize(ranks_[rank].stream), cudaSuccess);
  }
}

TEST_F(NcclLossTest, AbortEndsTheRanksOwnKernels) {
  Start(ranks_[0]);
  EXPECT_EQ(cudaStreamQuery(ranks_[0].stream), cudaErrorNotReady);
  Abort(ranks_[0]);
  EXPECT_EQ(cudaStreamSynchronize(ranks_[0].stream), cudaSuccess);
  EXPECT_NE(ValuesOf<float>(memory_[0].Read())[0], 1) << "the output is undefined";
  for (const int rank : {1, 2}) EXPECT_EQ(AwaitError(ranks_[rank].comm), ncclRemoteError);
}

TEST_F(NcclLossTest, AbortBetweenOperationsGivesRemoteErrors) {
  for (Rank& rank : ranks_) Start(rank);
  for (const Rank& rank : ranks_) EXPECT_EQ(cudaStreamSynchronize(rank.stream), cudaSuccess);
  Abort(ranks_[1]);
  for (const int rank : {0, 2}) EXPECT_EQ(AwaitError(ranks_[rank].comm), ncclRemoteError);
}

// NCCL's kernel may still write to its output after ncclCommAbort() has returned.
TEST_F(NcclLossTest, AbortedOperationStillWritesItsOutput) {
  cudaStream_t other = nullptr;
  ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
  ASSERT_EQ(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking), cudaSuccess);
  void* freed = nullptr;
  ASSERT_EQ(cudaMalloc(&freed, kCount * sizeof(float)), cudaSuccess);
  ASSERT_EQ(nccl_->AllReduce(memory_[0].data(), freed, kCount, ncclFloat32, ncclSum, ranks_[0].comm,
                             ranks_[0].stream),
            ncclInProgress);
  ASSERT_EQ(Await(ranks_[0].comm), ncclSuccess);
  EXPECT_EQ(cudaFreeAsync(freed, other), cudaSuccess);
  EXPECT_EQ(cudaStreamSynchronize(other), cudaSuccess);
  Abort(ranks_[0]);
  EXPECT_EQ(cudaStreamSynchronize(ranks_[0].stream), cudaErrorIllegalAddress);
  EXPECT_THAT(LastReport(), HasSubstr("ncclAllReduce"));
  EXPECT_TRUE(HasNewReports());
  // Destroys everything before the reset: the fixture must not use handles that a reset destroyed.
  EXPECT_EQ(cudaStreamDestroy(other), cudaSuccess);
  AbortAll();
  memory_.clear();
  cudaSetDevice(0);
  EXPECT_EQ(cudaDeviceReset(), cudaSuccess);
}

}  // namespace
}  // namespace tensord::cuda_emulation
