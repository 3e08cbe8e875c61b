// Misuse of NCCL that the emulation detects.
#include <gmock/gmock.h>

#include <functional>
#include <string>
#include <vector>

#include "tensord/tests/unit/cuda_emulation/emulation_fixture.h"
#include "tensord/tests/unit/cuda_emulation/nccl_fixture.h"

namespace tensord::cuda_emulation {
namespace {

using testing::HasSubstr;

// Two ranks, and 16 floats of input and output on each.
class NcclMisuseTest : public NcclEmulationTest {
 protected:
  static constexpr size_t kCount = 16;

  void SetUp() override {
    NcclEmulationTest::SetUp();
    Connect(2);
    for (const Rank& rank : ranks_) {
      inputs_.push_back(Upload(rank.number, std::vector<float>(kCount, 1)));
      outputs_.push_back(Upload(rank.number, std::vector<float>(kCount, 0)));
    }
    ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
  }
  void TearDown() override {
    AbortAll();
    inputs_.clear();
    outputs_.clear();
    NcclEmulationTest::TearDown();
  }

  ncclResult_t AllReduce(const Rank& rank, size_t count = kCount) {
    return nccl_->AllReduce(inputs_[rank.number].data(), outputs_[rank.number].data(), count,
                            ncclFloat32, ncclSum, rank.comm, rank.stream);
  }
  // Calls `call` for each rank, with its device current, and expects that it starts an operation.
  void CallAll(const std::function<ncclResult_t(const Rank&)>& call) {
    for (const Rank& rank : ranks_) {
      ASSERT_EQ(cudaSetDevice(rank.number), cudaSuccess);
      EXPECT_EQ(call(rank), ncclInProgress);
    }
  }
  // Expects that rank 0's call has returned `expected` as its `result`, and that later calls return
  // the same error.
  void ExpectRejected(ncclResult_t result, ncclResult_t expected, const std::string& text) {
    EXPECT_EQ(result, expected);
    EXPECT_THAT(nccl_->GetLastError(ranks_[0].comm), HasSubstr(text));
    EXPECT_TRUE(HasNewReports());
    EXPECT_EQ(Await(ranks_[0].comm), expected);
    EXPECT_EQ(AllReduce(ranks_[0]), expected);
  }
  // Expects that both ranks fail and that their streams don't wait.
  void ExpectMismatch(const std::string& text) {
    for (const Rank& rank : ranks_) {
      EXPECT_EQ(AwaitError(rank.comm), ncclInvalidUsage);
      EXPECT_EQ(cudaStreamSynchronize(rank.stream), cudaSuccess);
    }
    EXPECT_THAT(nccl_->GetLastError(nullptr), HasSubstr(text));
    EXPECT_THAT(LastReport(), HasSubstr(text));
    EXPECT_TRUE(HasNewReports());
    EXPECT_NE(ValuesOf<float>(outputs_[0].Read())[0], 2)
        << "the operation has an output despite the error";
  }

  std::vector<DeviceMemory> inputs_, outputs_;
};

TEST_F(NcclMisuseTest, ReportsDifferentCounts) {
  CallAll([&](const Rank& rank) { return AllReduce(rank, kCount - rank.number); });
  ExpectMismatch("ncclAllReduce of 15 float32 (sum)");
}

TEST_F(NcclMisuseTest, ReportsDifferentReductions) {
  CallAll([&](const Rank& rank) {
    return nccl_->AllReduce(inputs_[rank.number].data(), outputs_[rank.number].data(), kCount,
                            ncclFloat32, rank.number == 0 ? ncclSum : ncclMax, rank.comm,
                            rank.stream);
  });
  ExpectMismatch("ncclAllReduce of 16 float32 (max)");
}

TEST_F(NcclMisuseTest, ReportsDifferentOperations) {
  CallAll([&](const Rank& rank) {
    if (rank.number == 0) return AllReduce(rank);
    return nccl_->Broadcast(inputs_[1].data(), outputs_[1].data(), kCount, ncclFloat32, 1,
                            rank.comm, rank.stream);
  });
  ExpectMismatch("ncclBroadcast of 16 float32 from rank 1");
}

TEST_F(NcclMisuseTest, ReportsDifferentRoots) {
  CallAll([&](const Rank& rank) {
    return nccl_->Broadcast(inputs_[rank.number].data(), outputs_[rank.number].data(), kCount,
                            ncclFloat32, rank.number, rank.comm, rank.stream);
  });
  ExpectMismatch("from rank 1");
}

TEST_F(NcclMisuseTest, RejectsAnotherCurrentDevice) {
  ASSERT_EQ(cudaSetDevice(1), cudaSuccess);
  const ncclResult_t result = AllReduce(ranks_[0]);
  ExpectRejected(result, ncclInvalidUsage, "device 1 is current");
}

TEST_F(NcclMisuseTest, RejectsAStreamOfAnotherDevice) {
  Rank mixed = ranks_[0];
  mixed.stream = ranks_[1].stream;
  ExpectRejected(AllReduce(mixed), ncclUnhandledCudaError, "the stream is on device 1");
}

TEST_F(NcclMisuseTest, RejectsTheDefaultStream) {
  Rank without_stream = ranks_[0];
  without_stream.stream = nullptr;
  ExpectRejected(AllReduce(without_stream), ncclInvalidUsage, "default stream");
}

TEST_F(NcclMisuseTest, RejectsMemoryOfAnotherDevice) {
  const ncclResult_t result =
      nccl_->AllReduce(inputs_[1].data(), outputs_[0].data(), kCount, ncclFloat32, ncclSum,
                       ranks_[0].comm, ranks_[0].stream);
  EXPECT_THAT(LastReport(), HasSubstr("is on device 1, not on device 0"));
  ExpectRejected(result, ncclInvalidArgument, "sendbuff");
}

TEST_F(NcclMisuseTest, RejectsMemoryPastTheAllocation) {
  const ncclResult_t result = nccl_->AllGather(inputs_[0].data(), outputs_[0].data(), kCount,
                                               ncclFloat32, ranks_[0].comm, ranks_[0].stream);
  EXPECT_THAT(LastReport(), HasSubstr("go past an allocation's end"));
  ExpectRejected(result, ncclInvalidArgument, "recvbuff");
}

TEST_F(NcclMisuseTest, RejectsHostMemory) {
  float host[kCount] = {};
  const ncclResult_t result = nccl_->AllReduce(host, outputs_[0].data(), kCount, ncclFloat32,
                                               ncclSum, ranks_[0].comm, ranks_[0].stream);
  ExpectRejected(result, ncclInvalidArgument, "sendbuff");
}

TEST_F(NcclMisuseTest, RejectsOverlappingBuffersThatAreNotInPlace) {
  const ncclResult_t result =
      nccl_->AllReduce(inputs_[0].data(), inputs_[0].data() + 4, kCount - 1, ncclFloat32, ncclSum,
                       ranks_[0].comm, ranks_[0].stream);
  ExpectRejected(result, ncclInvalidArgument, "overlap");
}

TEST_F(NcclMisuseTest, RejectsATypeThatIsNotEmulated) {
  const ncclResult_t result =
      nccl_->AllReduce(inputs_[0].data(), outputs_[0].data(), 1, ncclFloat8e4m3, ncclSum,
                       ranks_[0].comm, ranks_[0].stream);
  ExpectRejected(result, ncclInvalidArgument, "data type");
}

TEST_F(NcclMisuseTest, RejectsAReductionThatIsNotEmulated) {
  const ncclResult_t result =
      nccl_->AllReduce(inputs_[0].data(), outputs_[0].data(), 1, ncclFloat32, ncclNumOps,
                       ranks_[0].comm, ranks_[0].stream);
  ExpectRejected(result, ncclInvalidArgument, "reduction");
}

TEST_F(NcclMisuseTest, RejectsARootOutsideTheCommunicator) {
  const ncclResult_t result = nccl_->Broadcast(inputs_[0].data(), outputs_[0].data(), 1,
                                               ncclFloat32, 2, ranks_[0].comm, ranks_[0].stream);
  ExpectRejected(result, ncclInvalidArgument, "root 2 is out of range");
}

TEST_F(NcclMisuseTest, RejectsACallWhileThePreviousOneIsInProgress) {
  TheOptions().max_delay_us = 200000;
  EXPECT_EQ(AllReduce(ranks_[0]), ncclInProgress);
  const ncclResult_t second = AllReduce(ranks_[0]);
  ExpectRejected(second, ncclInvalidArgument, "in progress");
}

TEST_F(NcclMisuseTest, RejectsACapturedStream) {
  ASSERT_EQ(cudaStreamBeginCapture(ranks_[0].stream, cudaStreamCaptureModeRelaxed), cudaSuccess);
  const ncclResult_t result = AllReduce(ranks_[0]);
  cudaGraph_t graph = nullptr;
  EXPECT_EQ(cudaStreamEndCapture(ranks_[0].stream, &graph), cudaErrorStreamCaptureInvalidated);
  ExpectRejected(result, ncclInvalidUsage, "captured stream");
}

TEST_F(NcclMisuseTest, ReportsMemoryThatIsFreedTooEarly) {
  cudaStream_t other = nullptr;
  ASSERT_EQ(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking), cudaSuccess);
  void* freed = nullptr;
  ASSERT_EQ(cudaMalloc(&freed, kCount * sizeof(float)), cudaSuccess);
  {
    const StreamBlocker blocker(ranks_[0].stream);
    ASSERT_EQ(nccl_->AllReduce(freed, outputs_[0].data(), kCount, ncclFloat32, ncclSum,
                               ranks_[0].comm, ranks_[0].stream),
              ncclInProgress);
    EXPECT_EQ(Await(ranks_[0].comm), ncclSuccess);
    EXPECT_EQ(cudaFreeAsync(freed, other), cudaSuccess);
    EXPECT_EQ(cudaStreamSynchronize(other), cudaSuccess);
  }
  EXPECT_EQ(cudaStreamSynchronize(ranks_[0].stream), cudaErrorIllegalAddress);
  EXPECT_THAT(LastReport(), HasSubstr("ncclAllReduce"));
  EXPECT_TRUE(HasNewReports());
  EXPECT_EQ(AllReduce(ranks_[0]), ncclUnhandledCudaError);
  EXPECT_TRUE(HasNewReports());
  // Destroys everything before the reset: the fixture must not use handles that a reset destroyed.
  EXPECT_EQ(cudaStreamDestroy(other), cudaSuccess);
  AbortAll();
  inputs_.clear();
  outputs_.clear();
  cudaSetDevice(0);
  EXPECT_EQ(cudaDeviceReset(), cudaSuccess);
}

}  // namespace
}  // namespace tensord::cuda_emulation
