// Tests a client of a thousand servers: its cost for one server must not grow with the number of
// the other servers.
#include "tensord/tests/control_plane/control_plane.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tensord/client/tensord.h"

namespace tensord::control_plane {
namespace {

constexpr int kServers = 1000;
constexpr int kOpsEach = 20;

// What a client has sent for one program that uses the first servers of a cluster.
struct Work {
  int64_t commands = 0;
  int64_t messages_to_others = 0;
};

// Runs kOpsEach ops on each of the first `count` servers, and waits for them.
Work DoSomeWork(const Cluster& cluster, int count) {
  const std::vector<ClusterServer> servers = cluster.servers();
  std::vector<int64_t> commands, messages;
  for (const ClusterServer& server : servers) {
    commands.push_back(server.client.stats().commands_sent);
    messages.push_back(server.client.stats().messages_sent);
  }
  std::vector<Tensor> tensors;
  for (int i = 0; i < count; ++i) tensors.push_back(Ones(*cluster.device(i), {4}));
  for (int op = 0; op < kOpsEach; ++op) {
    for (Tensor& tensor : tensors) tensor = tensor + tensor;
  }
  Work work;
  for (int i = 0; i < static_cast<int>(servers.size()); ++i) {
    if (i < count) {
      EXPECT_TRUE(servers[i].client.Synchronize().ok());
      work.commands += servers[i].client.stats().commands_sent - commands[i];
    } else {
      work.messages_to_others += servers[i].client.stats().messages_sent - messages[i];
    }
  }
  return work;
}

TEST(ControlPlaneTest, CommandsOfOneServerDontDependOnTheOthers) {
  ControlPlane plane;
  Work of_one;
  {
    const auto one = Cluster::Connect(ControlPlane::Addresses(1));
    ASSERT_TRUE(one.ok()) << one.status();
    of_one = DoSomeWork(*one, 1);
  }
  const auto thousand = Cluster::Connect(ControlPlane::Addresses(kServers));
  ASSERT_TRUE(thousand.ok()) << thousand.status();
  ASSERT_EQ(thousand->devices().size(), static_cast<size_t>(kServers));
  EXPECT_EQ(thousand->device("inproc-731/cpu:0")->name(), "inproc-731/cpu:0");
  const Work beside = DoSomeWork(*thousand, 1);
  EXPECT_EQ(beside.commands, of_one.commands);
  EXPECT_EQ(beside.messages_to_others, 0);
  // The first server has the definitions of "ones" and "add" already.
  EXPECT_EQ(DoSomeWork(*thousand, kServers).commands, kServers * of_one.commands - 2);
}

TEST(ControlPlaneTest, TryDeviceCountsGpusAndFallsBackToACpu) {
  ControlPlane plane({"cuda:0", "cuda:1", "cpu:0"});
  const auto client = Client::Connect("inproc-0:1");
  ASSERT_TRUE(client.ok()) << client.status();
  EXPECT_EQ(client->TryDevice().name(), "cuda:0");
  EXPECT_EQ(client->TryDevice(1).name(), "cuda:1");
  EXPECT_EQ(client->TryDevice(2).name(), "cpu:0");
  EXPECT_EQ(client->device(2)->name(), "cpu:0");
  const auto cluster = Cluster::Connect(ControlPlane::Addresses(2));
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  EXPECT_EQ(cluster->TryDevice().name(), "inproc-0/cuda:0");
  EXPECT_EQ(cluster->TryDevice(3).name(), "inproc-1/cuda:1");
  EXPECT_EQ(cluster->TryDevice(4).name(), "inproc-0/cpu:0");
  EXPECT_EQ(cluster->TryDevice(-1).name(), "inproc-0/cpu:0");
  EXPECT_EQ(cluster->device(3)->name(), "inproc-1/cuda:0");
}

TEST(ControlPlaneTest, TryDevicePrefersEveryKindToACpu) {
  ControlPlane plane({"cpu:0", "toy:0", "toy:1"});
  const auto client = Client::Connect("inproc-0:1");
  ASSERT_TRUE(client.ok()) << client.status();
  EXPECT_EQ(client->TryDevice().name(), "toy:0");
  EXPECT_EQ(client->TryDevice(1).name(), "toy:1");
  EXPECT_EQ(client->TryDevice(2).name(), "cpu:0");
  EXPECT_EQ(client->TryAllDevices().size(), 2);
  const auto cluster = Cluster::Connect(ControlPlane::Addresses(2));
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  EXPECT_EQ(cluster->TryDevice(2).name(), "inproc-1/toy:0");
  EXPECT_EQ(cluster->TryAllDevices().size(), 4);
}

TEST(ControlPlaneTest, TryDeviceIsNotValidWithoutDevices) {
  ControlPlane plane(std::vector<std::string>{});
  const auto cluster = Cluster::Connect(ControlPlane::Addresses(2));
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  EXPECT_FALSE(cluster->TryDevice().valid());
  EXPECT_FALSE(Cluster().TryDevice().valid());
  EXPECT_EQ(cluster->device(0).status().code(), absl::StatusCode::kOutOfRange);
}

TEST(ControlPlaneTest, LosingOneServerOfAThousandDisturbsNoOther) {
  ControlPlane plane;
  const auto cluster = Cluster::Connect(ControlPlane::Addresses(kServers));
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  const Device first = *cluster->device(0);
  const auto lost = static_cast<int>(cluster->servers()[0].client.session_number()) - 1;
  plane.Disconnect(lost);
  absl::Status end;
  // Commands fail as soon as the client has received the end of the stream.
  for (int i = 0; i < 1000 && end.ok(); ++i) end = cluster->servers()[0].client.Synchronize();
  EXPECT_EQ(end.code(), absl::StatusCode::kDataLoss) << end;
  EXPECT_FALSE(Ones(first, {1}).ok());
  int connected = 0;
  for (const ClusterServer& server : cluster->servers()) {
    connected += server.state == ServerState::kConnected ? 1 : 0;
  }
  EXPECT_EQ(connected, kServers - 1);
  EXPECT_EQ(cluster->servers()[0].state, ServerState::kLost);
}

}  // namespace
}  // namespace tensord::control_plane
