// A separate program, because the tests of other programs create a context on GPU 0.
#include <gtest/gtest.h>

#include <future>
#include <utility>

#include "tensord/server/device/cuda/cuda_device.h"
#include "tensord/tests/cuda_emulation/control.h"
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
  int64_t before = 0;
  for (int i = 0; i < kOps + 2; ++i) {
    if (i == 2) before = cuda_emulation::RuntimeCalls();
    const BufferRef out = *(*device)->Allocate(spec.size_bytes());
    ASSERT_TRUE((*device)->Launch({FindOp("add"), &attrs, inputs, {&spec, out->data()}}).ok());
  }
  EXPECT_LE(cuda_emulation::RuntimeCalls() - before, kOps * kMaxCallsOfAnOp);
}

}  // namespace
}  // namespace tensord::server
