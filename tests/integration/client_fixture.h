// A daemon with the two devices of TestDevicesFlag(), and a C++ client that is connected to it.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "tensord/client/tensord.h"
#include "tensord/tests/integration/daemon_fixture.h"

namespace tensord::integration {

class ClientFixture : public testing::Test {
 protected:
  void SetUp() override {
    auto daemon = DaemonProcess::Start({TestDevicesFlag()});
    ASSERT_TRUE(daemon.ok()) << daemon.status();
    daemon_ = *std::move(daemon);
    // If the server ends, calls fail after half a second.
    auto client =
        Client::Connect(daemon_->address(), {.reconnect_timeout = absl::Milliseconds(500)});
    ASSERT_TRUE(client.ok()) << client.status();
    client_ = *std::move(client);
    first_ = *client_.device(TestDevice(0));
    second_ = *client_.device(TestDevice(1));
  }

  int64_t Used(const Device& device) {
    const auto memory = client_.memory(device);
    return memory.ok() ? memory->used_bytes : -1;
  }

  Tensor Floats(const std::vector<float>& values) { return FromVector(first_, values); }

  std::unique_ptr<DaemonProcess> daemon_;
  Client client_;
  Device first_;
  Device second_;
};

}  // namespace tensord::integration
