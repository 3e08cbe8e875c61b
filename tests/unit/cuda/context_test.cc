// A separate program, because the tests of other programs create a context on GPU 0.
#include <gtest/gtest.h>

#include <future>
#include <thread>
#include <utility>
#include <vector>

#include "tensord/server/device/cuda/cuda_device.h"
#include "tensord/server/device/cuda/cuda_handles.h"
#include "tensord/server/device/cuda/memory_pool.h"
#include "tensord/server/device/memory_account.h"
#include "tensord/tests/cuda_emulation/control.h"
#include "tensord/tests/test_launch.h"
#include "tensord/tests/unit/cuda/cuda_fixture.h"

namespace tensord::server {
namespace {

class CudaContextTest : public CudaTest {
 protected:
  void SetUp() override {}  // no device on GPU 0
};

TEST_F(CudaContextTest, DeviceOnGpu1CreatesNoContextOnGpu0) {
  auto device = MakeCudaDevice({DeviceKind::kCuda, 0}, 1, kLimitBytes);
  ASSERT_TRUE(device.ok()) << device.status();
  const HostTensor ones = HostTensor::Of<float>(DType::kFloat32, {4}, {1, 2, 3, 4});
  const HostTensor sum = Run(**device, "add", {ones, ones}, {});
  for (int i = 0; i < 4; ++i) EXPECT_EQ(sum.At(i), 2 * (i + 1));
  device->reset();
  EXPECT_TRUE(cuda_emulation::HasContext(1));
  EXPECT_FALSE(cuda_emulation::HasContext(0));
}

// Before each call, the other GPU is current. The emulation rejects calls of CUDA for which another
// GPU must be current, so the backend must make its own GPU current.
TEST_F(CudaContextTest, DevicesOnTwoGpusTakeTurnsOnOneThread) {
  constexpr int kGpus = 2;
  const TensorSpec spec{DType::kFloat32, {256}};
  const HostTensor values = MakeValues(spec.dtype, spec.shape, 1);
  std::unique_ptr<Device> devices[kGpus];
  BufferRef inputs[kGpus], outputs[kGpus];
  std::unique_ptr<KernelGraph> graphs[kGpus];
  const auto take_turns = [&](auto step) {
    for (int gpu = 0; gpu < kGpus; ++gpu) {
      const absl::Status status = step(gpu);
      ASSERT_TRUE(status.ok()) << "GPU " << gpu << ": " << status;
    }
  };
  for (int gpu = 0; gpu < kGpus; ++gpu) {
    auto device = MakeCudaDevice({DeviceKind::kCuda, gpu}, gpu, kLimitBytes);
    ASSERT_TRUE(device.ok()) << device.status();
    devices[gpu] = *std::move(device);
  }
  take_turns([&](int gpu) {
    inputs[gpu] = *devices[gpu]->Allocate(spec.size_bytes());
    return absl::OkStatus();
  });
  take_turns([&](int gpu) {
    return devices[gpu]->Write(*inputs[gpu], 0, values.bytes.data(), spec.size_bytes());
  });
  take_turns([&](int gpu) {
    outputs[gpu] = *devices[gpu]->Allocate(spec.size_bytes());
    return absl::OkStatus();
  });
  const Attributes attrs;
  const auto negate = [&](int gpu) {
    const Operand input = {&spec, inputs[gpu]->data()};
    return devices[gpu]->Launch({TestLaunch(*devices[gpu]).context(),
                                 FindOp("neg"),
                                 &attrs,
                                 absl::MakeConstSpan(&input, 1),
                                 {{&spec, outputs[gpu]->data()}}});
  };
  take_turns(negate);
  const MemoryAccount::Ref account = MemoryAccount::Open({.device = "cuda:0"});
  take_turns([&](int gpu) {
    auto graph = devices[gpu]->Capture(*account, [&] { return negate(gpu); });
    const absl::Status captured = graph.status();
    if (captured.ok()) graphs[gpu] = *std::move(graph);
    return captured;
  });
  take_turns([&](int gpu) { return graphs[gpu]->Launch({}); });
  take_turns([&](int gpu) {
    Wait(*devices[gpu]);
    return devices[gpu]->Check();
  });
  take_turns([&](int gpu) {
    const HostTensor result = Download(spec, outputs[gpu]);
    for (int64_t i = 0; i < spec.num_elements(); ++i) EXPECT_EQ(result.At(i), -values.At(i));
    return absl::OkStatus();
  });
  take_turns([&](int gpu) {
    return devices[gpu]->CopyFrom(*inputs[gpu], *outputs[1 - gpu], spec.size_bytes());
  });
  take_turns([&](int gpu) {
    graphs[gpu].reset();
    inputs[gpu].reset();
    outputs[gpu].reset();
    return absl::OkStatus();
  });
  for (std::unique_ptr<Device>& device : devices) device.reset();
  EXPECT_EQ(cuda_emulation::LiveObjects(), "");
}

// A call of the CUDA runtime takes about as long as a small kernel. So once blocks of the output's
// size have been freed, an op must make few calls for its memory and its launch.
TEST_F(CudaContextTest, AddTakesFewRuntimeCalls) {
  constexpr int kOps = 100;
  constexpr int64_t kMaxCallsOfAnOp = 3;
  auto device = MakeCudaDevice({DeviceKind::kCuda, 0}, 0, kLimitBytes);
  ASSERT_TRUE(device.ok()) << device.status();
  const TensorSpec spec{DType::kFloat32, {1000}};
  const BufferRef a = *(*device)->Allocate(spec.size_bytes());
  const BufferRef b = *(*device)->Allocate(spec.size_bytes());
  const Attributes attrs;
  const std::vector<Operand> inputs = {{&spec, a->data()}, {&spec, b->data()}};
  const TestLaunch launch(**device);
  int64_t before = 0;
  for (int i = 0; i < kOps + 2; ++i) {
    if (i == 2) before = cuda_emulation::RuntimeCalls();
    const BufferRef out = *(*device)->Allocate(spec.size_bytes());
    ASSERT_TRUE(
        (*device)
            ->Launch({launch.context(), FindOp("add"), &attrs, inputs, {{&spec, out->data()}}})
            .ok());
  }
  EXPECT_LE(cuda_emulation::RuntimeCalls() - before, kOps * kMaxCallsOfAnOp);
}

// An allocation on the same GPU makes the pool free its blocks. They are many, so that the pool is
// abandoned, and the stream destroyed, meanwhile.
TEST_F(CudaContextTest, AbandonedPoolFreesNoBlocksInADestroyedStream) {
  constexpr int kRounds = 5, kBlocks = 3000;
  constexpr int64_t kBlockBytes = 512, kTooManyBytes = int64_t{1} << 40;
  const cuda::DeviceGuard guard(0);
  const cuda::Stream other_stream = *cuda::MakeStream();
  const auto other_pool = *cuda::MemoryPool::Create(0, 0, other_stream.get(), SmallBlocks::kReuse);
  for (int round = 0; round < kRounds; ++round) {
    cuda::Stream stream = *cuda::MakeStream();
    const auto pool = *cuda::MemoryPool::Create(0, 0, stream.get(), SmallBlocks::kReuse);
    std::vector<void*> blocks;
    for (int i = 0; i < kBlocks; ++i) blocks.push_back(*pool->Allocate(kBlockBytes, stream.get()));
    for (void* block : blocks) pool->Free(block, kBlockBytes, stream.get());
    ASSERT_EQ(cuda_emulation::UsedBytes(0), kBlocks * kBlockBytes);
    const int64_t calls = cuda_emulation::RuntimeCalls();
    std::thread allocates([&] {
      const cuda::DeviceGuard thread_guard(0);
      EXPECT_FALSE(other_pool->Allocate(kTooManyBytes, other_stream.get()).ok());
    });
    while (cuda_emulation::RuntimeCalls() < calls + kBlocks / 10) {  // it frees blocks
    }
    EXPECT_TRUE(pool->Abandon().empty());
    stream = cuda::Stream();
    allocates.join();
    EXPECT_EQ(cuda_emulation::UsedBytes(0), 0);
  }
}

}  // namespace
}  // namespace tensord::server
