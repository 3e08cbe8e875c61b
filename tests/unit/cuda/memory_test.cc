#include <gmock/gmock.h>

#include <thread>

#include "cuda_fixture.h"
#include "tensord/server/device/cuda/cuda_device.h"
#include "tensord/server/device/memory_account.h"
#include "tensord/tests/expect_error.h"

namespace tensord::server {
namespace {

TEST_F(CudaTest, DescribesItsGpu) {
  const DeviceInfo& info = cuda_->info();
  EXPECT_EQ(info.name.ToString(), "cuda:0");
  EXPECT_FALSE(info.model.empty());
  EXPECT_EQ(info.uuid.size(), std::string("GPU-01234567-89ab-cdef-0123-456789abcdef").size());
  EXPECT_THAT(info.compute_capability, testing::MatchesRegex("[0-9]+.[0-9]"));
  EXPECT_FALSE(cuda_->host_accessible());
  EXPECT_EQ(cuda_->memory().total_bytes, *CudaTotalMemory(0));
  EXPECT_EQ(cuda_->memory().limit_bytes, kLimitBytes);
}

TEST_F(CudaTest, CountsTheBytesOfBuffers) {
  EXPECT_EQ(cuda_->memory().used_bytes, 0);
  {
    const auto a = cuda_->Allocate(1000), b = cuda_->Allocate(24);
    ASSERT_TRUE(a.ok() && b.ok());
    EXPECT_EQ(reinterpret_cast<uintptr_t>((*a)->data()) % 64, 0u);
    EXPECT_EQ(cuda_->memory().used_bytes, 1024);
  }
  EXPECT_EQ(cuda_->memory().used_bytes, 0);
  EXPECT_EQ(cuda_->memory().peak_bytes, 1024);
}

TEST_F(CudaTest, EmptyAllocationTakesNoMemory) {
  const auto empty = cuda_->Allocate(0);
  ASSERT_TRUE(empty.ok());
  EXPECT_EQ((*empty)->data(), nullptr);
  EXPECT_TRUE(cuda_->Write(**empty, 0, nullptr, 0).ok());
  EXPECT_TRUE(cuda_->Read(**empty, 0, nullptr, 0).ok());
}

TEST_F(CudaTest, RefusesOnlyAllocationsBeyondTheLimit) {
  const auto all = cuda_->Allocate(kLimitBytes - 100);
  ASSERT_TRUE(all.ok()) << all.status();
  const absl::Status refused = cuda_->Allocate(101).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(refused.message(), testing::HasSubstr("asked for 101 bytes, 100 bytes are free"));
  EXPECT_TRUE(cuda_->Allocate(100).ok());
}

// A sort needs two items of 8 bytes for each element.
TEST_F(CudaTest, ScratchMemoryIsCharged) {
  const TensorSpec spec{DType::kFloat32, {100'000}};
  const OpPlan plan = *PlanOp("sort", {spec}, {});
  const BufferRef x = *cuda_->Allocate(spec.size_bytes());
  ASSERT_TRUE(
      cuda_->Write(*x, 0, std::string(spec.size_bytes(), 1).data(), spec.size_bytes()).ok());
  const BufferRef values = *cuda_->Allocate(plan.outputs[0].size_bytes());
  const BufferRef indices = *cuda_->Allocate(plan.outputs[1].size_bytes());
  const int64_t operands = cuda_->memory().used_bytes;
  const Operand input = {&spec, x->data()};
  const Operand outputs[] = {{&plan.outputs[0], values->data()},
                             {&plan.outputs[1], indices->data()}};
  const auto sort = [&](int64_t limit_bytes) {
    const MemoryAccount::Ref account =
        MemoryAccount::Open({.device = "cuda:0", .session_limit_bytes = limit_bytes});
    const LaunchContext context = {*account, *cuda_};
    const absl::Status status =
        cuda_->Launch({context, plan.schema, &plan.attrs, absl::MakeConstSpan(&input, 1), outputs});
    EXPECT_EQ(account->used_bytes(), 0);
    EXPECT_EQ(cuda_->scratch_bytes(), 0);
    EXPECT_EQ(cuda_->memory().used_bytes, operands);
    return status;
  };
  ExpectError(sort(1'500'000), absl::StatusCode::kResourceExhausted,
              {"needs 1200000 bytes for its results and at least 1600000 bytes for intermediate",
               "a session may hold"});
  EXPECT_TRUE(sort(1'600'000).ok());
  EXPECT_EQ(cuda_->memory().peak_bytes, operands + 1'600'000);
  Wait(*cuda_);
}

TEST_F(CudaTest, ReportsThatTheGpuIsOutOfMemory) {
  const int64_t more_than_there_is = 2 * *CudaTotalMemory(0);
  auto greedy = MakeCudaDevice({DeviceKind::kCuda, 1}, 0, more_than_there_is);
  ASSERT_TRUE(greedy.ok()) << greedy.status();
  const absl::Status refused = (*greedy)->Allocate(more_than_there_is).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(refused.message(), testing::HasSubstr("cuda:1"));
  EXPECT_THAT(refused.message(), testing::HasSubstr("physical device"));
  EXPECT_EQ((*greedy)->memory().used_bytes, 0);
  EXPECT_TRUE((*greedy)->Allocate(1 << 20).ok());
}

TEST_F(CudaTest, BuffersMayBeDroppedOnAnyThread) {
  for (int i = 0; i < 50; ++i) {
    BufferRef buffer = Upload(*cuda_, MakeValues(DType::kFloat32, {1000}, 1));
    std::thread([dropped = std::move(buffer)]() mutable { dropped.reset(); }).join();
  }
  EXPECT_EQ(cuda_->memory().used_bytes, 0);
}

TEST_F(CudaTest, FencesCallBackInOrder) {
  std::vector<int> order;
  for (int i = 0; i < 10; ++i) {
    cuda_->Fence([&order, i](const absl::Status& status) {
      EXPECT_TRUE(status.ok()) << status;
      order.push_back(i);
    });
  }
  Wait(*cuda_);
  EXPECT_THAT(order, testing::ElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 8, 9));
}

class CudaReuseTest : public CudaTest {
 protected:
  CudaReuseTest() : CudaTest(SmallBlocks::kReuse) {}
};

TEST_F(CudaReuseTest, ReusesASmallBlock) {
  BufferRef first = *cuda_->Allocate(1000);
  const void* const data = first->data();
  first.reset();
  const BufferRef larger = *cuda_->Allocate(5000);
  EXPECT_NE(larger->data(), data);
  const BufferRef second = *cuda_->Allocate(900);
  EXPECT_EQ(second->data(), data);
  EXPECT_EQ(cuda_->memory().used_bytes, 5900);
}

// Each op allocates blocks that the op before it has freed.
TEST_F(CudaReuseTest, ComputesAChainInReusedMemory) {
  const HostTensor one = HostTensor::Of<float>(DType::kFloat32, {4}, {1, 1, 1, 1});
  HostTensor sum = one;
  for (int i = 0; i < 100; ++i) sum = Run(*cuda_, "add", {sum, one}, {});
  EXPECT_EQ(sum.At(3), 101);
}

// Three blocks take slightly more than a quarter of the memory each, and a fourth block slightly
// more than an eighth.
TEST_F(CudaTest, DoesNotRoundUpLargeBlocks) {
  const int64_t total = *CudaTotalMemory(0);
  auto whole = MakeCudaDevice({DeviceKind::kCuda, 1}, 0, total);
  ASSERT_TRUE(whole.ok()) << whole.status();
  std::vector<BufferRef> blocks;
  for (const int64_t bytes : {total / 4, total / 4, total / 4, total / 8}) {
    absl::StatusOr<BufferRef> block = (*whole)->Allocate(bytes + total / 1000);
    ASSERT_TRUE(block.ok()) << block.status();
    blocks.push_back(*std::move(block));
  }
}

// If a large block doesn't fit, the pool returns its small blocks to the driver.
TEST_F(CudaReuseTest, ReturnsSmallBlocksWhenTheGpuIsOutOfMemory) {
  const int64_t total = *CudaTotalMemory(0);
  auto whole = MakeCudaDevice({DeviceKind::kCuda, 1}, 0, total);
  ASSERT_TRUE(whole.ok()) << whole.status();
  constexpr int64_t kBlockBytes = 1 << 20;
  std::vector<BufferRef> blocks;
  for (absl::StatusOr<BufferRef> block = (*whole)->Allocate(kBlockBytes); block.ok();
       block = (*whole)->Allocate(kBlockBytes)) {
    blocks.push_back(*std::move(block));
  }
  ASSERT_GT(blocks.size(), 64u);
  const int64_t large_bytes = static_cast<int64_t>(blocks.size()) / 2 * kBlockBytes;
  EXPECT_FALSE((*whole)->Allocate(large_bytes).ok());
  blocks.clear();
  const auto large = (*whole)->Allocate(large_bytes);
  EXPECT_TRUE(large.ok()) << large.status();
}

}  // namespace
}  // namespace tensord::server
