// A client's Wait, when the device of the server finishes work later than it launches the work.
#include <gtest/gtest.h>

#include <future>

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

}  // namespace
}  // namespace tensord::server
