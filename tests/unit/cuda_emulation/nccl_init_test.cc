// Connecting the ranks of the emulated NCCL, and joins that its hub rejects.
#include <gmock/gmock.h>

#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "tensord/tests/unit/cuda_emulation/nccl_fixture.h"

namespace tensord::cuda_emulation {
namespace {

using testing::HasSubstr;

class NcclInitTest : public NcclEmulationTest {
 protected:
  void SetUp() override {
    NcclEmulationTest::SetUp();
    // Like NCCL, the emulation listens until all ranks have connected. Its thread waits on an
    // eventfd.
    RecordProperty("keeps", "socket: anon_inode:[eventfd]");
    ASSERT_EQ(nccl_->GetUniqueId(&id_), ncclSuccess);
  }
  void TearDown() override {
    for (ncclComm_t comm : comms_) EXPECT_EQ(nccl_->CommAbort(comm), ncclSuccess);
    NcclEmulationTest::TearDown();
  }

  ncclComm_t Join(int rank, int size, const ncclUniqueId& id) {
    ncclComm_t comm = nullptr;
    EXPECT_EQ(Init(id, rank, size, &comm), ncclInProgress);
    comms_.push_back(comm);
    return comm;
  }
  void ExpectAll(ncclResult_t state, const std::string& text) {
    for (ncclComm_t comm : comms_) EXPECT_EQ(Await(comm), state);
    EXPECT_THAT(nccl_->GetLastError(nullptr), HasSubstr(text));
    EXPECT_TRUE(HasNewReports());
  }

  ncclUniqueId id_;
  std::vector<ncclComm_t> comms_;
};

TEST_F(NcclInitTest, RejectsARankOutsideTheCommunicator) {
  ncclComm_t comm = nullptr;
  for (const int rank : {-1, 2, 3}) {
    cudaSetDevice(0);
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    EXPECT_EQ(nccl_->CommInitRankConfig(&comm, 2, id_, rank, &config), ncclInvalidArgument);
    EXPECT_EQ(comm, nullptr);
  }
  EXPECT_THAT(nccl_->GetLastError(nullptr), HasSubstr("rank 3 is out of range"));
  EXPECT_TRUE(HasNewReports());
}

TEST_F(NcclInitTest, RejectsAnIdThatGetUniqueIdHasNotMade) {
  ncclComm_t comm = nullptr;
  EXPECT_EQ(Init(ncclUniqueId{}, 0, 1, &comm), ncclInvalidArgument);
  EXPECT_TRUE(HasNewReports());
}

TEST_F(NcclInitTest, RejectsABlockingCommunicator) {
  cudaSetDevice(0);
  ncclComm_t comm = nullptr;
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  EXPECT_EQ(nccl_->CommInitRankConfig(&comm, 1, id_, 0, &config), ncclInvalidUsage);
  config = {};
  EXPECT_EQ(nccl_->CommInitRankConfig(&comm, 1, id_, 0, &config), ncclInvalidArgument);
  EXPECT_TRUE(HasNewReports());
}

TEST_F(NcclInitTest, RejectsAnIdWithAnotherSecret) {
  ncclUniqueId other;
  ASSERT_EQ(nccl_->GetUniqueId(&other), ncclSuccess);
  // An id consists of a tag, the hub's address and a secret, of 16 bytes each. `other` gets the
  // address of id_ and keeps its own secret.
  std::memcpy(other.internal + 16, id_.internal + 16, 16);
  Join(0, 1, other);
  ExpectAll(ncclInvalidUsage, "unique id");
}

TEST_F(NcclInitTest, RejectsARankThatJoinsTwice) {
  Join(1, 3, id_);
  Join(1, 3, id_);
  ExpectAll(ncclInvalidUsage, "rank 1 has joined twice");
}

TEST_F(NcclInitTest, RejectsRanksThatDisagreeAboutTheSize) {
  Join(0, 3, id_);
  Join(1, 2, id_);
  ExpectAll(ncclInvalidUsage, "joins with size");
}

// NCCL rejects them, too, unless NCCL_MULTI_RANK_GPU_ENABLE is set.
TEST_F(NcclInitTest, RejectsTwoRanksOnOneGpu) {
  Join(0, kDevices + 1, id_);
  Join(kDevices, kDevices + 1, id_);  // on device 0, too
  ExpectAll(ncclInvalidUsage, "on the same GPU");
}

TEST_F(NcclInitTest, RejectsARankThatJoinsAfterAllOthers) {
  Join(0, 1, id_);
  EXPECT_EQ(Await(comms_[0]), ncclSuccess);
  const ncclComm_t late = Join(0, 1, id_);
  EXPECT_EQ(Await(late), ncclInvalidUsage);
  EXPECT_TRUE(HasNewReports());
  ncclResult_t state = ncclInProgress;
  EXPECT_EQ(nccl_->CommGetAsyncError(comms_[0], &state), ncclSuccess);
  EXPECT_EQ(state, ncclSuccess);
}

TEST_F(NcclInitTest, AbortEndsTheWaitForAMissingRank) {
  const ncclComm_t comm = Join(0, 2, id_);
  ncclResult_t state = ncclSuccess;
  EXPECT_EQ(nccl_->CommGetAsyncError(comm, &state), ncclSuccess);
  EXPECT_EQ(state, ncclInProgress);
  comms_.clear();
  EXPECT_EQ(nccl_->CommAbort(comm), ncclSuccess);
  // The handle is no longer valid.
  EXPECT_EQ(nccl_->CommGetAsyncError(comm, &state), ncclInvalidArgument);
  EXPECT_EQ(nccl_->CommAbort(comm), ncclInvalidArgument);
  EXPECT_EQ(nccl_->AllReduce(nullptr, nullptr, 1, ncclFloat32, ncclSum, comm, nullptr),
            ncclInvalidArgument);
  EXPECT_TRUE(HasNewReports());
}

// Rank 0 aborts. Only an abort after its join affects the others, so the test repeats it with
// longer delays until the other rank gets an error.
TEST_F(NcclInitTest, AbortAfterJoinIsARemoteErrorForWaitingRanks) {
  const ncclComm_t waiting = Join(1, 3, id_);
  ncclResult_t state = ncclInProgress;
  for (int i = 0; state == ncclInProgress && i < 500; ++i) {
    ncclComm_t leaving = nullptr;
    ASSERT_EQ(Init(id_, 0, 3, &leaving), ncclInProgress);
    std::this_thread::sleep_for(i * std::chrono::microseconds(100));
    EXPECT_EQ(nccl_->CommAbort(leaving), ncclSuccess);
    EXPECT_EQ(nccl_->CommGetAsyncError(waiting, &state), ncclSuccess);
  }
  EXPECT_EQ(state, ncclRemoteError);
}

TEST_F(NcclInitTest, ListensAtTheNamedInterface) {
  ASSERT_EQ(setenv("NCCL_SOCKET_IFNAME", "=lo", 1), 0);
  ncclUniqueId id;
  EXPECT_EQ(nccl_->GetUniqueId(&id), ncclSuccess);
  ASSERT_EQ(setenv("NCCL_SOCKET_IFNAME", "=l", 1), 0);  // a prefix isn't enough
  EXPECT_EQ(nccl_->GetUniqueId(&id), ncclSystemError);
  EXPECT_TRUE(HasNewReports());
  ASSERT_EQ(setenv("NCCL_SOCKET_IFNAME", "l", 1), 0);
  EXPECT_EQ(nccl_->GetUniqueId(&id), ncclSuccess);
  ASSERT_EQ(unsetenv("NCCL_SOCKET_IFNAME"), 0);
}

}  // namespace
}  // namespace tensord::cuda_emulation
