// Calls that wait for a device: a Wait while the device finishes work later than it launches the
// work, and reads from memory that the host cannot access.
#include <gtest/gtest.h>

#include <cstdlib>
#include <future>
#include <memory>
#include <vector>

#include "tensord/client/tensord.h"
#include "tensord/server/rpc/server.h"
#include "tensord/tests/unit/engine/fake_device.h"

namespace tensord::server {
namespace {

TEST(WaitTest, ReturnsWhenTheDeviceHasFinished) {
  auto owned = std::make_unique<FakeDevice>(0, FakeDevice::Options{.host_accessible = false});
  FakeDevice& device = *owned;
  std::vector<std::unique_ptr<Device>> devices;
  devices.push_back(std::move(owned));
  ServerOptions options;
  options.listen = {"127.0.0.1:0"};
  auto server = Server::Start(options, std::move(devices));
  ASSERT_TRUE(server.ok()) << server.status();
  auto client = Client::Connect((*server)->addresses().front());
  ASSERT_TRUE(client.ok()) << client.status();

  device.HoldFences();
  const tensord::Tensor x = Full(*client->device("cpu:0"), {4}, 1, {.dtype = DType::kInt32});
  std::future<absl::Status> waiting = std::async(std::launch::async, [&x] { return x.Wait(); });
  EXPECT_TRUE(device.WaitUntilFenceHeld());
  EXPECT_EQ(device.launched(), std::vector<std::string>{"full"});
  EXPECT_EQ(waiting.wait_for(std::chrono::seconds(0)), std::future_status::timeout);
  device.ReleaseFences();
  EXPECT_TRUE(waiting.get().ok());
}

// The host can't access the device's memory, so each read needs two chunks of 512 KiB, and the
// limit holds those of two reads.
TEST(ReadTest, ReadsThatExceedTheLimitOfResponsesWaitForEachOther) {
  constexpr int64_t kElements = 1 << 20;
  setenv("TENSORD_SHARED_MEMORY", "0", 1);
  std::vector<std::unique_ptr<Device>> devices;
  devices.push_back(std::make_unique<FakeDevice>(
      0, FakeDevice::Options{.limit_bytes = 16 << 20, .host_accessible = false}));
  ServerOptions options;
  options.listen = {"127.0.0.1:0"};
  options.limits.max_response_bytes_per_principal = 2 << 20;
  auto server = Server::Start(options, std::move(devices));
  ASSERT_TRUE(server.ok()) << server.status();
  auto client = Client::Connect((*server)->addresses().front());
  ASSERT_TRUE(client.ok()) << client.status();

  std::vector<int32_t> values(kElements);
  for (int64_t i = 0; i < kElements; ++i) values[i] = static_cast<int32_t>(i);
  const tensord::Tensor x = FromVector(*client->device("cpu:0"), values);
  std::vector<std::future<StatusOrVector<int32_t>>> reads;
  for (int i = 0; i < 16; ++i) {
    reads.push_back(std::async(std::launch::async, [&x] { return x.Read<int32_t>(); }));
  }
  for (auto& read : reads) {
    const StatusOrVector<int32_t> result = read.get();
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_TRUE(*result == values);
  }
}

}  // namespace
}  // namespace tensord::server
