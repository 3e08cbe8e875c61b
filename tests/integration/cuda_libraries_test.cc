// A daemon on emulated GPUs that finds neither cuBLASLt, nor cuDNN, nor NVRTC.
#include <gmock/gmock.h>

#include <memory>
#include <string>
#include <vector>

#include "tensord/client/tensord.h"
#include "tensord/tests/integration/daemon_process.h"

namespace tensord::integration {
namespace {

using testing::Each;
using testing::HasSubstr;

class CudaLibrariesTest : public testing::Test {
 protected:
  void SetUp() override {
    auto daemon = DaemonProcess::Start({"--devices=cuda:0=64MiB,cpu=64MiB"},
                                       {"TENSORD_CUDA_LIBRARY_FOLDER=/nonexistent"});
    ASSERT_TRUE(daemon.ok()) << daemon.status();
    daemon_ = *std::move(daemon);
    auto client = Client::Connect(daemon_->address());
    ASSERT_TRUE(client.ok()) << client.status();
    client_ = *std::move(client);
    gpu_ = *client_.device("cuda:0");
  }

  std::unique_ptr<DaemonProcess> daemon_;
  Client client_;
  Device gpu_;
};

TEST_F(CudaLibrariesTest, NamesMissingLibraryAndItsPackageInConvError) {
  const Tensor x = FromVector(gpu_, std::vector<float>(64, 1.5f));
  const Tensor images = Reshape(x, {1, 1, 8, 8});
  const absl::Status convolved = Conv2d(images, images).Read<float>().status();
  EXPECT_EQ(convolved.code(), absl::StatusCode::kFailedPrecondition) << convolved;
  EXPECT_THAT(std::string(convolved.message()), HasSubstr("libcudnn.so.9"));
  EXPECT_THAT(std::string(convolved.message()),
              HasSubstr("install NVIDIA's package libcudnn9-cuda-"));
  EXPECT_THAT(*x.Read<float>(), Each(1.5f));
  daemon_->ExpectTerminatesCleanly();
}

TEST_F(CudaLibrariesTest, ServesGpuAndNamesMissingLibraryInMatmulError) {
  EXPECT_THAT(daemon_->Output(), HasSubstr("libcublasLt.so."));
  const Tensor x = FromVector(gpu_, std::vector<float>(64, 1.5f));
  // The chain of ops is long enough to be fused, for which NVRTC would compile a kernel.
  for (int i = 0; i < 5; ++i) {
    const Tensor y = Relu((x + 1.0) * 2.0 - 1.0);
    const auto values = y.Read<float>();
    ASSERT_TRUE(values.ok()) << values.status();
    EXPECT_THAT(*values, Each(4.0f));
  }
  const Tensor matrix = Reshape(x, {8, 8});
  const absl::Status product = Matmul(matrix, matrix).Read<float>().status();
  EXPECT_EQ(product.code(), absl::StatusCode::kFailedPrecondition) << product;
  EXPECT_THAT(std::string(product.message()), HasSubstr("libcublasLt.so."));
  EXPECT_THAT(*x.Read<float>(), Each(1.5f));
  daemon_->ExpectTerminatesCleanly();
}

}  // namespace
}  // namespace tensord::integration
