// Several daemons on this machine, each with the two devices of TestDevicesFlag(), and a client's
// cluster of them.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tensord/client/tensord.h"
#include "tensord/tests/integration/daemon_fixture.h"

namespace tensord::integration {

// Returns the bytes that tensors hold on all devices of a cluster.
inline int64_t UsedBytesOf(const Cluster& cluster) {
  int64_t used = 0;
  for (const ClusterServer& server : cluster.servers()) {
    for (const Device& device : server.client.devices()) {
      const auto memory = server.client.memory(device);
      if (memory.ok()) used += memory->used_bytes;
    }
  }
  return used;
}

class ClusterFixture : public testing::Test {
 protected:
  // By default, the daemons may fetch tensors from each other.
  explicit ClusterFixture(int servers = 2, std::vector<std::string> flags = {"--peers=127.0.0.1:*"})
      : num_servers_(servers), flags_(std::move(flags)) {
    flags_.push_back(TestDevicesFlag());
    flags_.push_back("--cpu-threads=2");
  }

  // Returns the flags of a server.
  virtual std::vector<std::string> FlagsOf(int /*server*/) const { return flags_; }

  void SetUp() override {
    for (int i = 0; i < num_servers_; ++i) {
      auto daemon = DaemonProcess::Start(FlagsOf(i));
      ASSERT_TRUE(daemon.ok()) << daemon.status();
      daemons_.push_back(*std::move(daemon));
      addresses_.push_back(daemons_.back()->address());
    }
    Connect(addresses_);
  }

  void Connect(const std::vector<std::string>& addresses) {
    ClusterOptions options;
    // If a server ends, calls fail after half a second.
    options.connect.reconnect_timeout = absl::Milliseconds(500);
    options.connect.shared_memory = false;
    auto cluster = Cluster::Connect(addresses, options);
    ASSERT_TRUE(cluster.ok()) << cluster.status();
    cluster_ = *std::move(cluster);
  }

  // Returns the first device of a server.
  Device On(int server) const { return *cluster_.device(2 * server); }

  int64_t UsedEverywhere() { return UsedBytesOf(cluster_); }

  const int num_servers_;
  std::vector<std::string> flags_;
  std::vector<std::unique_ptr<DaemonProcess>> daemons_;
  std::vector<std::string> addresses_;
  Cluster cluster_;
};

}  // namespace tensord::integration
