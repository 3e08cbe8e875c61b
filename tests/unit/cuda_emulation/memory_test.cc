#include <gmock/gmock.h>

#include <string>

#include "tensord/tests/unit/cuda_emulation/emulation_fixture.h"
#include "tensord/tests/unit/cuda_emulation/test_kernels.h"

namespace tensord::cuda_emulation {
namespace {

using testing::Each;
using testing::HasSubstr;

class MemoryEmulationTest : public EmulationTest {
 protected:
  void SetUp() override {
    EmulationTest::SetUp();
    pool_ = MakePool(0);
  }
  void TearDown() override {
    cudaMemPoolDestroy(pool_);
    EmulationTest::TearDown();
  }

  // Expects that a fill of `bytes` from `data` on is rejected, with a report that contains `why`.
  void ExpectRejected(void* data, size_t bytes, const std::string& why) {
    EXPECT_EQ(cudaMemsetAsync(data, 0, bytes, first_), cudaErrorInvalidValue);
    EXPECT_TRUE(HasNewReports());
    EXPECT_THAT(LastReport(), HasSubstr(why));
  }

  cudaMemPool_t pool_ = nullptr;
};

TEST_F(MemoryEmulationTest, ADeviceRunsOutOfMemory) {
  TheOptions().memory_bytes = 1 << 20;
  const int64_t before = UsedBytes(0);
  void* data = nullptr;
  EXPECT_EQ(cudaMallocFromPoolAsync(&data, (1 << 20) + 1, pool_, first_),
            cudaErrorMemoryAllocation);
  EXPECT_EQ(cudaGetLastError(), cudaErrorMemoryAllocation);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess) << "being out of memory is not sticky";
  data = TakeFromPool(pool_, 1000);
  EXPECT_EQ(UsedBytes(0), before + 1000);
  EXPECT_EQ(cudaFreeAsync(data, first_), cudaSuccess);
  EXPECT_EQ(cudaStreamSynchronize(first_), cudaSuccess);
  EXPECT_EQ(UsedBytes(0), before);
}

TEST_F(MemoryEmulationTest, MemoryIsUsedUntilTheStreamReachesTheFree) {
  int* data = TakeFromPool(pool_, 1000);
  const int64_t with_it = UsedBytes(0);
  {
    const StreamBlocker blocker(first_);
    EXPECT_EQ(cudaFreeAsync(data, first_), cudaSuccess);
    EXPECT_EQ(UsedBytes(0), with_it);
  }
  EXPECT_EQ(cudaStreamSynchronize(first_), cudaSuccess);
  EXPECT_EQ(UsedBytes(0), with_it - 1000);
}

TEST_F(MemoryEmulationTest, WritesBeforeTheStreamReachesTheAllocationAreLost) {
  int* data = nullptr;
  {
    const StreamBlocker blocker(first_);
    data = TakeFromPool(pool_, 8 * sizeof(int));
    EXPECT_EQ(LaunchFill(data, 8, 5, second_), cudaSuccess);
    EXPECT_EQ(cudaStreamSynchronize(second_), cudaSuccess);
  }
  EXPECT_THAT(Download(data, 8, first_), Each(testing::Ne(5)));
  EXPECT_EQ(cudaFreeAsync(data, first_), cudaSuccess);
}

TEST_F(MemoryEmulationTest, ReportsTheUseOfFreedMemory) {
  int* data = TakeFromPool(pool_, 32);
  // The stream doesn't free the memory while it is blocked, but the host may no longer name it.
  const StreamBlocker blocker(first_);
  EXPECT_EQ(cudaFreeAsync(data, first_), cudaSuccess);
  ExpectRejected(data, 32, "freed");
}

TEST_F(MemoryEmulationTest, ReportsMemoryOfOtherKinds) {
  char on_host[32];
  ExpectRejected(on_host, 32, "is not in memory on a device");
  void* pinned = nullptr;
  ASSERT_EQ(cudaHostAlloc(&pinned, 32, cudaHostAllocDefault), cudaSuccess);
  ExpectRejected(pinned, 32, "is not in memory on a device");
  int* data = TakeFromPool(pool_, 32);
  EXPECT_EQ(cudaMemcpyAsync(data, on_host, 32, cudaMemcpyHostToDevice, first_),
            cudaErrorInvalidValue);
  EXPECT_TRUE(HasNewReports());
  EXPECT_THAT(LastReport(), HasSubstr("is not in pinned host memory"));
  EXPECT_EQ(cudaFreeAsync(data, first_), cudaSuccess);
  EXPECT_EQ(cudaFreeHost(pinned), cudaSuccess);
}

TEST_F(MemoryEmulationTest, ReportsRangesPastAnAllocation) {
  int* data = TakeFromPool(pool_, 32);
  ExpectRejected(data, 33, "past an allocation's end");
  EXPECT_EQ(cudaMemsetAsync(data + 1, 0, 28, first_), cudaSuccess);
  EXPECT_EQ(cudaFreeAsync(data, first_), cudaSuccess);
}

TEST_F(MemoryEmulationTest, EndsTheProcessIfAKernelWrotePastAnAllocation) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(
      {
        int* data = TakeFromPool(pool_, 8 * sizeof(int));
        LaunchFill(data, 9, 1, first_);
        cudaFreeAsync(data, first_);
        cudaStreamSynchronize(first_);
      },
      "past the end of an allocation of 32 bytes");
}

TEST_F(MemoryEmulationTest, ReportsDoubleFreeAndFreeOfAnInnerPointer) {
  int* data = TakeFromPool(pool_, 32);
  EXPECT_EQ(cudaFreeAsync(data + 1, first_), cudaErrorInvalidValue);
  EXPECT_TRUE(HasNewReports());
  EXPECT_EQ(cudaFreeAsync(data, first_), cudaSuccess);
  EXPECT_EQ(cudaFreeAsync(data, first_), cudaErrorInvalidValue);
  EXPECT_TRUE(HasNewReports());
  EXPECT_EQ(cudaFree(data), cudaErrorInvalidValue);
  EXPECT_TRUE(HasNewReports());
}

TEST_F(MemoryEmulationTest, HostCodeThatAccessesDeviceMemoryCrashes) {
  if (!TheOptions().catch_faults) GTEST_SKIP() << "needs TENSORD_EMULATED_CATCH_FAULTS";
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(*static_cast<volatile int*>(TakeFromPool(pool_, 8)) = 1,
               "host code accessed device");
  EXPECT_DEATH(static_cast<void>(*static_cast<volatile int*>(MakeInts(8, 1))),
               "host code accessed device");
}

TEST_F(MemoryEmulationTest, HostFunctionsOfAStreamMayNotAccessDeviceMemory) {
  if (!TheOptions().catch_faults) GTEST_SKIP() << "needs TENSORD_EMULATED_CATCH_FAULTS";
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(
      {
        cudaLaunchHostFunc(
            first_, [](void* data) { *static_cast<volatile int*>(data) = 1; },
            TakeFromPool(pool_, 8));
        cudaStreamSynchronize(first_);
      },
      "host code accessed device");
}

TEST_F(MemoryEmulationTest, OnlyADeviceThatIsUsedHasAContext) {
  constexpr int kUnusedDevice = kMaxDevices - 1;
  TheOptions().devices = kMaxDevices;
  int count = 0;
  cudaDeviceProp properties;
  EXPECT_EQ(cudaGetDeviceCount(&count), cudaSuccess);
  EXPECT_EQ(cudaGetDeviceProperties(&properties, kUnusedDevice), cudaSuccess);
  EXPECT_FALSE(HasContext(kUnusedDevice));
  EXPECT_EQ(cudaSetDevice(kUnusedDevice), cudaSuccess);
  EXPECT_TRUE(HasContext(kUnusedDevice));
  EXPECT_EQ(cudaDeviceReset(), cudaSuccess);
  EXPECT_FALSE(HasContext(kUnusedDevice));
  EXPECT_EQ(cudaSetDevice(kMaxDevices), cudaErrorInvalidDevice);
}

}  // namespace
}  // namespace tensord::cuda_emulation
