// Uploads by a client to an emulated GPU, through shared memory and over TCP.
#include <gmock/gmock.h>

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tensord/client/tensord.h"
#include "tensord/tests/integration/daemon_process.h"

namespace tensord::integration {
namespace {

using testing::HasSubstr;
using testing::Not;

class GpuUploadTest : public testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    auto daemon = DaemonProcess::Start({"--devices=cuda:0=512MiB,cuda:1=512MiB"});
    ASSERT_TRUE(daemon.ok()) << daemon.status();
    daemon_ = *std::move(daemon);
  }

  // Expects that the daemon didn't misuse CUDA, and that CUDA registered every ring.
  void TearDown() override {
    daemon_->ExpectTerminatesCleanly();
    EXPECT_THAT(daemon_->Output(), Not(HasSubstr("cuda emulation:")));
    EXPECT_THAT(daemon_->Output(), Not(HasSubstr("cudaHostRegister")));
  }

  std::unique_ptr<DaemonProcess> daemon_;
};

TEST_P(GpuUploadTest, UploadsTensorsFromSeveralClients) {
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i) {
    threads.emplace_back([this, i] {
      auto client = Client::Connect(daemon_->address(), {.shared_memory = GetParam()});
      ASSERT_TRUE(client.ok()) << client.status();
      for (const int64_t elements : {1 << 20, 5'000'001, 3}) {
        std::vector<float> values(elements);
        for (int64_t j = 0; j < elements; ++j) values[j] = static_cast<float>(j % 10'007 + i);
        for (const char* device : {"cuda:0", "cuda:1"}) {
          const auto read = FromVector(*client->device(device), values).Read<float>();
          ASSERT_TRUE(read.ok()) << read.status();
          EXPECT_TRUE(*read == values) << elements << " elements on " << device;
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

INSTANTIATE_TEST_SUITE_P(SharedMemory, GpuUploadTest, testing::Bool());

}  // namespace
}  // namespace tensord::integration
