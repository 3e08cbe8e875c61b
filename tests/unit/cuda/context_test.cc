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

}  // namespace
}  // namespace tensord::server
