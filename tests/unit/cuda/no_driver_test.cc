// Without a driver, the backend returns errors that name the reason.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tensord/server/device/cuda/cuda_device.h"

namespace tensord::server {
namespace {

TEST(NoDriverTest, SaysWhyThereIsNoGpu) {
  std::string reason;
  if (CudaDeviceCount(&reason) > 0) GTEST_SKIP() << "there is a GPU";
  EXPECT_FALSE(reason.empty());
  EXPECT_EQ(CudaDeviceCount(nullptr), 0);
}

TEST(NoDriverTest, ADeviceIsUnavailableWithTheReason) {
  std::string reason;
  if (CudaDeviceCount(&reason) > 0) GTEST_SKIP() << "there is a GPU";
  const auto device = MakeCudaDevice({DeviceKind::kCuda, 0}, 0, 1 << 20);
  EXPECT_EQ(device.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(device.status().message(), testing::HasSubstr(reason));
  EXPECT_EQ(CudaTotalMemory(0).status().code(), absl::StatusCode::kUnavailable);
}

TEST(NoDriverTest, RefusesAGpuThatIsNotThere) {
  const int count = CudaDeviceCount(nullptr);
  if (count == 0) GTEST_SKIP() << "there is no GPU";
  EXPECT_EQ(CudaTotalMemory(count).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(CudaTotalMemory(-1).status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace tensord::server
