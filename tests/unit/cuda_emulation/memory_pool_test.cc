#include "tensord/tests/cuda_emulation/memory_pool.h"

#include <gmock/gmock.h>

#include "tensord/tests/unit/cuda_emulation/emulation_fixture.h"
#include "tensord/tests/unit/cuda_emulation/test_kernels.h"

namespace tensord::cuda_emulation {
namespace {

using testing::HasSubstr;

constexpr int64_t kMemoryBytes = 1 << 20;

class PoolEmulationTest : public EmulationTest {
 protected:
  void SetUp() override {
    EmulationTest::SetUp();
    TheOptions().memory_bytes = kMemoryBytes;
  }

  static void SetReleaseThreshold(cudaMemPool_t pool, uint64_t bytes) {
    EXPECT_EQ(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &bytes), cudaSuccess);
  }
  void Free(void* data) { EXPECT_EQ(cudaFreeAsync(data, first_), cudaSuccess); }
  void Synchronize() { EXPECT_EQ(cudaStreamSynchronize(first_), cudaSuccess); }
  cudaError_t Allocate(size_t bytes, cudaMemPool_t pool) {
    void* data = nullptr;
    const cudaError_t error = cudaMallocFromPoolAsync(&data, bytes, pool, first_);
    if (error == cudaSuccess) Free(data);
    return error;
  }
};

TEST_F(PoolEmulationTest, KeepsMemoryUpToTheReleaseThreshold) {
  cudaMemPool_t pool = MakePool(0);
  SetReleaseThreshold(pool, 3000);
  Free(TakeFromPool(pool, 10000));
  Synchronize();
  EXPECT_EQ(UsedBytes(0), 0);
  EXPECT_EQ(ReservedBytes(0), 3000);
  size_t free_bytes = 0, total_bytes = 0;
  EXPECT_EQ(cudaMemGetInfo(&free_bytes, &total_bytes), cudaSuccess);
  EXPECT_EQ(free_bytes, static_cast<size_t>(kMemoryBytes - 3000));
  EXPECT_EQ(cudaMemPoolDestroy(pool), cudaSuccess);
  EXPECT_EQ(ReservedBytes(0), 0);
}

TEST_F(PoolEmulationTest, KeptMemoryIsUnavailableToOtherPoolsUntilATrim) {
  cudaMemPool_t pool = MakePool(0), other = MakePool(0);
  SetReleaseThreshold(pool, kMemoryBytes);
  Free(TakeFromPool(pool, kMemoryBytes));
  Synchronize();
  EXPECT_EQ(Allocate(1000, other), cudaErrorMemoryAllocation);
  EXPECT_EQ(Allocate(1000, pool), cudaSuccess);
  Synchronize();
  EXPECT_EQ(cudaMemPoolTrimTo(pool, 0), cudaSuccess);
  EXPECT_EQ(Allocate(1000, other), cudaSuccess);
  EXPECT_EQ(cudaMemPoolDestroy(pool), cudaSuccess);
  EXPECT_EQ(cudaMemPoolDestroy(other), cudaSuccess);
  cudaGetLastError();
}

TEST_F(PoolEmulationTest, ATrimKeepsAllocatedMemory) {
  cudaMemPool_t pool = MakePool(0);
  int* data = TakeFromPool(pool, 1000);
  EXPECT_EQ(cudaMemPoolTrimTo(pool, 0), cudaSuccess);
  EXPECT_EQ(ReservedBytes(0), 1000);
  Free(data);
  Synchronize();
  EXPECT_EQ(cudaMemPoolDestroy(pool), cudaSuccess);
}

TEST_F(PoolEmulationTest, ReportsAFreeThatPrecedesTheAllocation) {
  cudaMemPool_t pool = MakePool(0);
  {
    const StreamBlocker blocker(first_);
    EXPECT_EQ(cudaFreeAsync(TakeFromPool(pool, 16), second_), cudaSuccess);
    EXPECT_EQ(cudaStreamSynchronize(second_), cudaSuccess);
  }
  EXPECT_TRUE(HasNewReports());
  EXPECT_THAT(LastReport(), HasSubstr("free before the allocation"));
  EXPECT_EQ(cudaMemPoolDestroy(pool), cudaSuccess);
}

TEST_F(PoolEmulationTest, HasAMaximumSize) {
  cudaMemPool_t pool = MakePool(0, /*max_bytes=*/1000);
  EXPECT_EQ(Allocate(1001, pool), cudaErrorMemoryAllocation);
  EXPECT_EQ(Allocate(1000, pool), cudaSuccess);
  EXPECT_EQ(cudaMemPoolDestroy(pool), cudaSuccess);
  cudaGetLastError();
}

TEST_F(PoolEmulationTest, RefusesADestroyedPool) {
  cudaMemPool_t pool = MakePool(0);
  int* data = TakeFromPool(pool, 1000);
  EXPECT_EQ(cudaMemPoolDestroy(pool), cudaSuccess);
  EXPECT_EQ(Allocate(1000, pool), cudaErrorInvalidValue);
  EXPECT_TRUE(HasNewReports());
  EXPECT_THAT(LastReport(), HasSubstr("a pool that was destroyed"));
  EXPECT_EQ(cudaMemPoolDestroy(pool), cudaErrorInvalidValue);
  EXPECT_TRUE(HasNewReports());
  EXPECT_EQ(cudaMemPoolTrimTo(pool, 0), cudaErrorInvalidValue);
  EXPECT_TRUE(HasNewReports());
  Free(data);  // memory outlives its pool
  Synchronize();
  EXPECT_EQ(ReservedBytes(0), 0);
}

// The memory of a pool on device 1, for work on device 0.
class PeerEmulationTest : public PoolEmulationTest {
 protected:
  void SetUp() override {
    PoolEmulationTest::SetUp();
    pool_ = MakePool(1);
    data_ = TakeFromPool(pool_, 32);
    Synchronize();
  }
  void TearDown() override {
    cudaFree(data_);
    cudaMemPoolDestroy(pool_);
    PoolEmulationTest::TearDown();
  }

  cudaError_t AllowDevice0(cudaMemPool_t pool) {
    cudaMemAccessDesc access = {};
    access.location = {cudaMemLocationTypeDevice, 0};
    access.flags = cudaMemAccessFlagsProtReadWrite;
    return cudaMemPoolSetAccess(pool, &access, 1);
  }
  cudaError_t Copy(void* dst, int src_device) {
    return cudaMemcpyPeerAsync(dst, 0, data_, src_device, 32, first_);
  }

  cudaMemPool_t pool_ = nullptr;
  int* data_ = nullptr;
};

TEST_F(PeerEmulationTest, KernelsAndCopiesNeedAccess) {
  int* here = MakeInts(8, 0);
  EXPECT_EQ(Copy(here, 1), cudaErrorInvalidValue);
  EXPECT_TRUE(HasNewReports());
  EXPECT_THAT(LastReport(), HasSubstr("memory of device 1, to which device 0 has no access"));
  ASSERT_EQ(AllowDevice0(pool_), cudaSuccess);
  EXPECT_EQ(LaunchFill(data_, 8, 5, first_), cudaSuccess);
  EXPECT_EQ(Copy(here, 1), cudaSuccess);
  EXPECT_THAT(Download(here, 8, first_), testing::Each(5));
  EXPECT_EQ(cudaFree(here), cudaSuccess);
}

TEST_F(PeerEmulationTest, AKernelWithoutAccessFaults) {
  EXPECT_EQ(LaunchFill(data_, 8, 5, first_), cudaSuccess);
  EXPECT_EQ(cudaStreamSynchronize(first_), cudaErrorIllegalAddress);
  EXPECT_TRUE(HasNewReports());
  EXPECT_THAT(LastReport(), HasSubstr("memory of device 1"));
  ResetDevice();
}

TEST_F(PeerEmulationTest, CopiesNameTheDevicesOfTheirMemory) {
  ASSERT_EQ(AllowDevice0(pool_), cudaSuccess);
  int* here = MakeInts(8, 0);
  EXPECT_EQ(Copy(here, 0), cudaErrorInvalidValue);
  EXPECT_TRUE(HasNewReports());
  EXPECT_THAT(LastReport(), HasSubstr("is on device 1, not on device 0"));
  EXPECT_EQ(cudaFree(here), cudaSuccess);
}

TEST_F(PeerEmulationTest, WithoutPeersCopiesGoThroughTheHost) {
  TheOptions().peers = false;
  int can_access = 1;
  EXPECT_EQ(cudaDeviceCanAccessPeer(&can_access, 0, 1), cudaSuccess);
  EXPECT_EQ(can_access, 0);
  EXPECT_EQ(AllowDevice0(pool_), cudaErrorInvalidDevice);
  EXPECT_TRUE(HasNewReports());
  int* here = MakeInts(8, 0);
  EXPECT_EQ(Copy(here, 1), cudaSuccess);
  EXPECT_EQ(cudaFree(here), cudaSuccess);
  cudaGetLastError();
}

}  // namespace
}  // namespace tensord::cuda_emulation
