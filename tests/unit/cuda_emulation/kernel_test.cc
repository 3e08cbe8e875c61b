#include <gmock/gmock.h>

#include "tensord/tests/unit/cuda_emulation/emulation_fixture.h"
#include "tensord/tests/unit/cuda_emulation/test_kernels.h"

namespace tensord::cuda_emulation {
namespace {

using testing::Each;
using testing::HasSubstr;

class KernelEmulationTest : public EmulationTest {
 protected:
  // Waits for the kernel that was launched, and expects that the context has the sticky error.
  void ExpectStickyError(cudaError_t sticky) {
    EXPECT_EQ(cudaStreamSynchronize(first_), sticky);
    void* memory = nullptr;
    EXPECT_EQ(cudaMalloc(&memory, 16), sticky) << "the error does not stick";
    EXPECT_EQ(cudaGetLastError(), sticky);
    EXPECT_EQ(cudaGetLastError(), sticky) << "cudaGetLastError() cleared a sticky error";
    EXPECT_TRUE(HasNewReports());
    ResetDevice();
  }
};

TEST_F(KernelEmulationTest, AllThreadsOfAllBlocksRun) {
  int* data = MakeInts(1000, 0);
  EXPECT_EQ(LaunchFillWith(1000, 1, data, 1000, first_), cudaSuccess);
  EXPECT_THAT(Download(data, 1000, first_), Each(1));
  EXPECT_EQ(cudaFree(data), cudaSuccess);
}

TEST_F(KernelEmulationTest, BarriersSynchronizeThreadsInEveryOrder) {
  int* in = MakeInts(kThreads, 1);
  int* out = MakeInts(1, 0);
  for (const int order : {0, 1, 7}) {
    TheOptions().thread_order = order;
    EXPECT_EQ(LaunchTreeSum(in, out, /*with_barriers=*/true, first_), cudaSuccess);
    EXPECT_THAT(Download(out, 1, first_), Each(kThreads)) << "order " << order;
  }
  EXPECT_EQ(cudaFree(in), cudaSuccess);
  EXPECT_EQ(cudaFree(out), cudaSuccess);
}

TEST_F(KernelEmulationTest, MissingBarrierGivesAWrongSum) {
  TheOptions().thread_order = 0;  // in descending order, no barrier is needed
  int* in = MakeInts(kThreads, 1);
  int* out = MakeInts(1, 0);
  EXPECT_EQ(LaunchTreeSum(in, out, /*with_barriers=*/false, first_), cudaSuccess);
  EXPECT_NE(Download(out, 1, first_)[0], kThreads);
  EXPECT_EQ(cudaFree(in), cudaSuccess);
  EXPECT_EQ(cudaFree(out), cudaSuccess);
}

TEST_F(KernelEmulationTest, ShufflesExchangeWithinAWarp) {
  int* in = MakeInts(kThreads, 1);
  ASSERT_EQ(LaunchFill(in, kThreads / 2, 2, first_), cudaSuccess);
  int* out = MakeInts(2, 0);
  EXPECT_EQ(LaunchWarpSum(in, out, first_), cudaSuccess);
  EXPECT_THAT(Download(out, 2, first_), testing::ElementsAre(64, 32));
  EXPECT_EQ(cudaFree(in), cudaSuccess);
  EXPECT_EQ(cudaFree(out), cudaSuccess);
}

TEST_F(KernelEmulationTest, ABarrierThatSomeThreadsSkipIsALaunchFailure) {
  EXPECT_EQ(LaunchDivergentBarrier(first_), cudaSuccess);
  ExpectStickyError(cudaErrorLaunchFailure);
  EXPECT_THAT(LastReport(), HasSubstr("__syncthreads"));
}

TEST_F(KernelEmulationTest, AnIllegalAddressSticksUntilTheDeviceIsReset) {
  for (int round = 0; round < 3; ++round) {
    EXPECT_EQ(LaunchFill(reinterpret_cast<int*>(0x1000), 1, 1, first_), cudaSuccess);
    ExpectStickyError(cudaErrorIllegalAddress);
    int* data = MakeInts(8, 3);
    EXPECT_THAT(Download(data, 8, first_), Each(3));
    EXPECT_EQ(cudaFree(data), cudaSuccess);
  }
}

TEST_F(KernelEmulationTest, KernelsAfterAFaultDoNotRun) {
  cudaMemPool_t pool = MakePool(0);
  int* data = TakeFromPool(pool, 8 * sizeof(int));  // a reset doesn't free it
  EXPECT_EQ(LaunchFill(data, 8, 0, first_), cudaSuccess);
  {
    const StreamBlocker blocker(first_);
    EXPECT_EQ(LaunchFill(reinterpret_cast<int*>(0x1000), 1, 1, first_), cudaSuccess);
    EXPECT_EQ(LaunchFill(data, 8, 1, first_), cudaSuccess);
  }
  ExpectStickyError(cudaErrorIllegalAddress);
  EXPECT_THAT(Download(data, 8, first_), Each(0));
  EXPECT_EQ(cudaFree(data), cudaSuccess);
  EXPECT_EQ(cudaMemPoolDestroy(pool), cudaSuccess);
}

TEST_F(KernelEmulationTest, OutOfBoundsWriteIsAFault) {
  constexpr int kInts = 64;  // 256 bytes, the alignment of allocations
  int* data = MakeInts(kInts, 0);
  EXPECT_EQ(LaunchFill(data, kInts + 1, 1, first_), cudaSuccess);
  ExpectStickyError(cudaErrorIllegalAddress);
}

// A GPU can't store 16 bytes at an address that isn't a multiple of 16; an x86 processor can.
TEST_F(KernelEmulationTest, MisalignedAccessIsAFault) {
  int* data = MakeInts(64, 0);
  EXPECT_EQ(LaunchFillPacks(data + 4, 8, 1, first_), cudaSuccess);
  EXPECT_THAT(Download(data + 4, 32, first_), Each(1));
  EXPECT_EQ(LaunchFillPacks(data + 1, 8, 1, first_), cudaSuccess);
  ExpectStickyError(cudaErrorMisalignedAddress);
  EXPECT_THAT(LastReport(), HasSubstr("accessed a misaligned address"));
}

TEST_F(KernelEmulationTest, UseOfFreedMemoryIsAFault) {
  int* data = MakeInts(8, 0);
  EXPECT_EQ(cudaFree(data), cudaSuccess);
  EXPECT_EQ(LaunchFill(data, 8, 1, first_), cudaSuccess);
  ExpectStickyError(cudaErrorIllegalAddress);
  EXPECT_THAT(LastReport(), HasSubstr("in freed memory of device 0"));
}

TEST_F(KernelEmulationTest, MemoryOfAnotherDeviceIsAFault) {
  ASSERT_EQ(cudaSetDevice(1), cudaSuccess);
  void* data = nullptr;
  ASSERT_EQ(cudaMalloc(&data, 32), cudaSuccess);
  ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
  EXPECT_EQ(LaunchFill(static_cast<int*>(data), 8, 1, first_), cudaSuccess);
  ExpectStickyError(cudaErrorIllegalAddress);
  EXPECT_THAT(LastReport(), HasSubstr("memory of device 1"));
  ASSERT_EQ(cudaSetDevice(1), cudaSuccess);
  EXPECT_EQ(cudaFree(data), cudaSuccess);
}

TEST_F(KernelEmulationTest, RejectsALaunchWhileAnotherDeviceIsCurrent) {
  ASSERT_EQ(cudaSetDevice(1), cudaSuccess);
  EXPECT_EQ(LaunchFill(nullptr, 1, 1, first_), cudaErrorInvalidResourceHandle);
  EXPECT_TRUE(HasNewReports());
}

TEST_F(KernelEmulationTest, RejectsGridsAndBlocksBeyondTheLimits) {
  EXPECT_EQ(LaunchFillWith(1, 1025, nullptr, 0, first_), cudaErrorInvalidConfiguration);
  EXPECT_TRUE(HasNewReports());
  EXPECT_EQ(LaunchFillWith(0, 32, nullptr, 0, first_), cudaErrorInvalidConfiguration);
  EXPECT_TRUE(HasNewReports());
  EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidConfiguration);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
}

}  // namespace
}  // namespace tensord::cuda_emulation
