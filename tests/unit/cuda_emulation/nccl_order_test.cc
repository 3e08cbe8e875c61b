// The order of the emulated NCCL's operations.
#include <gmock/gmock.h>

#include <vector>

#include "tensord/tests/unit/cuda_emulation/emulation_fixture.h"
#include "tensord/tests/unit/cuda_emulation/nccl_fixture.h"
#include "tensord/tests/unit/cuda_emulation/test_kernels.h"

namespace tensord::cuda_emulation {
namespace {

using testing::Each;

class NcclOrderTest : public NcclEmulationTest {
 protected:
  static constexpr size_t kCount = 8;

  void SetUp() override {
    NcclEmulationTest::SetUp();
    Connect(2);
    for (const Rank& rank : ranks_) {
      inputs_.push_back(Upload(rank.number, std::vector<int>(kCount, 0)));
      outputs_.push_back(Upload(rank.number, std::vector<int>(kCount, 0)));
    }
  }
  void TearDown() override {
    AbortAll();
    inputs_.clear();
    outputs_.clear();
    NcclEmulationTest::TearDown();
  }

  ncclResult_t AllReduce(const Rank& rank, cudaStream_t stream) {
    return nccl_->AllReduce(inputs_[rank.number].data(), outputs_[rank.number].data(), kCount,
                            ncclInt32, ncclSum, rank.comm, stream);
  }
  cudaError_t Fill(const DeviceMemory& memory, int value, cudaStream_t stream) {
    return LaunchFill(reinterpret_cast<int*>(memory.data()), kCount, value, stream);
  }

  std::vector<DeviceMemory> inputs_, outputs_;
};

TEST_F(NcclOrderTest, OperationsRunInTheOrderOfTheStream) {
  RunAll([&](const Rank& rank) {
    EXPECT_EQ(Fill(inputs_[rank.number], rank.number + 1, rank.stream), cudaSuccess);
    return AllReduce(rank, rank.stream);
  });
  for (const Rank& rank : ranks_) {
    ASSERT_EQ(cudaSetDevice(rank.number), cudaSuccess);
    EXPECT_EQ(Fill(inputs_[rank.number], 100, rank.stream), cudaSuccess);
    EXPECT_THAT(ValuesOf<int>(outputs_[rank.number].Read()), Each(3));
  }
}

TEST_F(NcclOrderTest, AnOperationWaitsForAllRanks) {
  {
    const StreamBlocker blocker(ranks_[0].stream);
    StartAll([&](const Rank& rank) { return AllReduce(rank, rank.stream); });
    EXPECT_EQ(cudaStreamQuery(ranks_[1].stream), cudaErrorNotReady);
  }
  EXPECT_EQ(cudaStreamSynchronize(ranks_[1].stream), cudaSuccess);
}

TEST_F(NcclOrderTest, OperationsInTwoStreamsRunInTheOrderOfTheCalls) {
  ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
  cudaStream_t other = nullptr;
  ASSERT_EQ(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking), cudaSuccess);
  {
    const StreamBlocker blocker(ranks_[0].stream);
    // Rank 0's first operation is in the blocked stream, its second one in another stream.
    StartAll([&](const Rank& rank) { return AllReduce(rank, rank.stream); });
    StartAll([&](const Rank& rank) {
      return nccl_->Broadcast(inputs_[rank.number].data(), inputs_[rank.number].data(), kCount,
                              ncclInt32, 0, rank.comm, rank.number == 0 ? other : rank.stream);
    });
    EXPECT_EQ(cudaStreamQuery(other), cudaErrorNotReady);
  }
  EXPECT_EQ(cudaStreamSynchronize(other), cudaSuccess);
  EXPECT_EQ(cudaStreamSynchronize(ranks_[1].stream), cudaSuccess);
  EXPECT_EQ(cudaStreamDestroy(other), cudaSuccess);
}

TEST_F(NcclOrderTest, RunsManyOperationsInARow) {
  for (int i = 0; i < 100; ++i) {
    StartAll([&](const Rank& rank) {
      EXPECT_EQ(Fill(inputs_[rank.number], i + rank.number, rank.stream), cudaSuccess);
      return AllReduce(rank, rank.stream);
    });
  }
  for (const DeviceMemory& output : outputs_) {
    EXPECT_THAT(ValuesOf<int>(output.Read()), Each(2 * 99 + 1));
  }
}

TEST_F(NcclOrderTest, AllReducesLargeBuffers) {
  constexpr size_t kLarge = 4 << 20;
  std::vector<DeviceMemory> large;
  for (const Rank& rank : ranks_) {
    std::vector<int> values(kLarge);
    for (size_t i = 0; i < kLarge; ++i) values[i] = static_cast<int>(i) * (rank.number + 1);
    large.push_back(Upload(rank.number, values));
  }
  RunAll([&](const Rank& rank) {
    char* data = large[rank.number].data();
    return nccl_->AllReduce(data, data, kLarge, ncclInt32, ncclSum, rank.comm, rank.stream);
  });
  const std::vector<int> sums = ValuesOf<int>(large[1].Read());
  for (size_t i = 0; i < kLarge; ++i) ASSERT_EQ(sums[i], static_cast<int>(i) * 3) << i;
}

TEST_F(NcclOrderTest, OperationWithoutElementsDoesNothing) {
  ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
  EXPECT_EQ(
      nccl_->AllReduce(nullptr, nullptr, 0, ncclFloat32, ncclSum, ranks_[0].comm, ranks_[0].stream),
      ncclSuccess);
}

}  // namespace
}  // namespace tensord::cuda_emulation
