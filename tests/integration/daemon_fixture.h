// A fixture with a daemon, a connection and a session.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tensord/tests/expect_error.h"
#include "tensord/tests/integration/daemon_process.h"
#include "tensord/tests/integration/rpc_helpers.h"

namespace tensord::integration {

// Polls `condition` until it is true. If that takes more than 30 seconds, returns false. The limit
// isn't longer, because the default lease of a session or a ticket may end later, which also frees
// tensors.
inline bool Eventually(const std::function<bool()>& condition) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return true;
}

// Waits until `used` returns `bytes`. When a client gets the answer to an op or a call, a thread of
// the server may still hold a dropped tensor. The server then frees the memory a little later.
inline void ExpectEventuallyUsed(const std::function<int64_t()>& used, int64_t bytes) {
  EXPECT_TRUE(Eventually([&] { return used() == bytes; })) << used() << " bytes, not " << bytes;
}

class DaemonFixture : public testing::Test {
 protected:
  // The daemon has the devices of TestDevicesFlag().
  explicit DaemonFixture(std::vector<std::string> flags = {}) : flags_(std::move(flags)) {
    flags_.push_back(TestDevicesFlag());
  }

  void SetUp() override {
    auto daemon = DaemonProcess::Start(flags_);
    ASSERT_TRUE(daemon.ok()) << daemon.status();
    daemon_ = *std::move(daemon);
    client_ = std::make_unique<RpcClient>(daemon_->address());
    session_ = std::make_unique<RpcSession>(*client_);
    ASSERT_FALSE(session_->id().empty());
  }

  // Unless `expect_alive_` is false, expects that the daemon still runs and exits with 0.
  void TearDown() override {
    if (daemon_ == nullptr || !expect_alive_) return;
    session_.reset();
    client_.reset();
    daemon_->ExpectTerminatesCleanly();
  }

  int64_t Used(int device) { return UsedBytes(*client_, TestDevice(device)); }
  void ExpectEventuallyUsed(int device, int64_t bytes) {
    integration::ExpectEventuallyUsed([&] { return Used(device); }, bytes);
  }

  std::vector<std::string> flags_;
  std::unique_ptr<DaemonProcess> daemon_;
  std::unique_ptr<RpcClient> client_;
  std::unique_ptr<RpcSession> session_;
  bool expect_alive_ = true;
};

}  // namespace tensord::integration
