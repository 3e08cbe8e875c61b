// Clusters: device names, copies between servers, and the loss of a server.
#include <signal.h>

#include <numeric>
#include <string>
#include <vector>

#include "tensord/tests/integration/cluster_fixture.h"
#include "tensord/tests/mib.h"
#include "tensord/tests/proxy/delay_proxy.h"

namespace tensord::integration {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::vector<int32_t> Counting(int64_t count) {
  std::vector<int32_t> values(count);
  std::iota(values.begin(), values.end(), 0);
  return values;
}

class ClusterTest : public ClusterFixture {};

TEST_F(ClusterTest, DevicesAreNamedAfterTheirServers) {
  const std::vector<Device> devices = cluster_.devices();
  ASSERT_EQ(devices.size(), 4u);
  EXPECT_EQ(devices[0].name(), addresses_[0] + "/cpu:0");
  EXPECT_EQ(devices[3].name(), addresses_[1] + "/cpu:1");
  EXPECT_EQ(*cluster_.device(2), devices[2]);
  EXPECT_EQ(*cluster_.device(0), devices[0]);
  for (int index : {4, -1}) {
    ExpectError(cluster_.device(index), absl::StatusCode::kOutOfRange,
                {absl::StrCat("index ", index), "4 devices"});
  }
  ExpectError(Cluster().device(0), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(*cluster_.device(addresses_[1] + "/cpu:1"), devices[3]);
  EXPECT_EQ(*cluster_.device(addresses_[1] + "/cpu"), devices[2]);
  EXPECT_EQ(*cluster_.device("cpu:1"), devices[1]);
  EXPECT_THAT(cluster_.TryAllDevices(), ElementsAre(devices[0], devices[2]));
  EXPECT_EQ(cluster_.TryDevice(), devices[0]);
  EXPECT_EQ(cluster_.TryDevice(5), devices[0]);
  ExpectError(cluster_.device("cuda:0"), absl::StatusCode::kNotFound, {devices[3].name()});
  for (const ClusterServer& server : cluster_.servers()) {
    for (const auto& [kind, reason] : server.client.info().unavailable_devices) {
      ExpectError(cluster_.device(kind), absl::StatusCode::kNotFound,
                  {absl::StrCat(server.name, " has no ", kind, " device: ", reason)});
    }
  }
  ExpectError(cluster_.device("elsewhere/cpu:0"), absl::StatusCode::kNotFound,
              {"elsewhere", addresses_[0], addresses_[1]});
  EXPECT_THAT(FromVector<float>(devices[2], {1}).Describe(), HasSubstr(devices[2].name()));
}

TEST_F(ClusterTest, ConnectNamesAMissingServer) {
  const std::string missing = "127.0.0.1:1";
  ClusterOptions options;
  options.connect.connect_timeout = absl::Seconds(5);
  const auto all = Cluster::Connect({addresses_[0], missing}, options);
  ExpectError(all, absl::StatusCode::kUnavailable, {"1 of 2", missing});
  options.allow_missing = true;
  const auto some = Cluster::Connect({addresses_[0], missing}, options);
  ASSERT_TRUE(some.ok()) << some.status();
  EXPECT_EQ(some->devices().size(), 2u);
  const std::vector<ClusterServer> servers = some->servers();
  EXPECT_EQ(servers[0].state, ServerState::kConnected);
  EXPECT_EQ(servers[1].state, ServerState::kLost);
  EXPECT_EQ(servers[1].status.code(), absl::StatusCode::kUnavailable);
  ExpectError(some->device(missing + "/cpu:0"), absl::StatusCode::kUnavailable);
  ExpectError(Cluster::Connect({addresses_[0], addresses_[0]}), absl::StatusCode::kInvalidArgument,
              {"twice"});
}

TEST_F(ClusterTest, ConnectsToACommaSeparatedList) {
  const auto cluster = Cluster::Connect(addresses_[0] + ", " + addresses_[1]);
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  EXPECT_EQ(cluster->servers().size(), 2u);
}

TEST_F(ClusterTest, EmptyAddressListUsesTheEnvironment) {
  ASSERT_EQ(unsetenv("TENSORD_SERVERS"), 0);
  ASSERT_EQ(setenv("TENSORD_SERVER", addresses_[1].c_str(), 1), 0);
  const auto one = Cluster::Connect("");
  ASSERT_TRUE(one.ok()) << one.status();
  EXPECT_EQ(one->servers()[0].address, addresses_[1]);
  ASSERT_EQ(setenv("TENSORD_SERVERS", (addresses_[0] + "," + addresses_[1]).c_str(), 1), 0);
  const auto both = Cluster::Connect("");
  ASSERT_TRUE(both.ok()) << both.status();
  EXPECT_EQ(both->servers().size(), 2u);
  unsetenv("TENSORD_SERVERS");
  unsetenv("TENSORD_SERVER");
  ExpectError(Cluster::Connect(""), absl::StatusCode::kInvalidArgument, {"TENSORD_SERVERS"});
}

TEST_F(ClusterTest, CopiesFromServerToServer) {
  const std::vector<int32_t> values = Counting(4 * kMiB);
  const Tensor there = FromVector(On(0), values);
  const Tensor here = there.To(On(1));
  EXPECT_EQ(here.device(), On(1));
  EXPECT_EQ(here.spec(), there.spec());
  const auto report = here.copy_report();
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->path, CopyPath::kSharedMemory) << "they are on one host";
  EXPECT_EQ(report->bytes, here.size_bytes());
  EXPECT_GT(report->bytes_per_second(), 0);
  EXPECT_GE(report->wait_time(), absl::ZeroDuration());
  EXPECT_FALSE(report->route_skipped);
  EXPECT_EQ(*here.Read<int32_t>(), values);
}

TEST_F(ClusterTest, CopyBypassesTheClientsConnections) {
  std::vector<std::unique_ptr<proxy::DelayProxy>> proxies;
  std::vector<std::string> addresses;
  for (const std::string& address : addresses_) {
    proxy::DelayProxyOptions options;
    options.target = address;
    auto started = proxy::DelayProxy::Start(options);
    ASSERT_TRUE(started.ok()) << started.status();
    proxies.push_back(*std::move(started));
    addresses.push_back(proxies.back()->address());
  }
  Connect(addresses);
  const auto moved = [&] {
    int64_t bytes = 0;
    for (const auto& proxy : proxies) {
      const proxy::ProxyStats stats = proxy->stats();
      bytes += stats.bytes_to_server + stats.bytes_to_client;
    }
    return bytes;
  };
  const Tensor there = Normal(On(0), {16 * kMiB}, /*seed=*/1);
  ASSERT_TRUE(there.Wait().ok());
  const int64_t before = moved();
  const Tensor here = there.To(On(1));
  ASSERT_TRUE(here.copy_report().ok());
  EXPECT_LE(moved() - before, 64 * 1024);
  EXPECT_EQ(*Sum(Eq(here, Normal(On(1), {16 * kMiB}, /*seed=*/1))).Item<int64_t>(), 16 * kMiB);
}

TEST_F(ClusterTest, CopyToTheSameDeviceMovesNoBytes) {
  const Tensor x = FromVector<float>(On(1), {1, 2});
  EXPECT_TRUE(x.To(On(1)).IsSameAs(x));
  const auto report = x.copy_report();
  ASSERT_TRUE(report.ok());
  EXPECT_EQ(report->path, CopyPath::kSameDevice);
  EXPECT_EQ(report->bytes, 0);
  const auto beside = x.To(*cluster_.device(3)).copy_report();
  ASSERT_TRUE(beside.ok()) << beside.status();
  EXPECT_EQ(beside->path, CopyPath::kPeer);
  EXPECT_EQ(beside->bytes, 8);
}

TEST_F(ClusterTest, OpsWaitForTheCopiesOfTheirInputs) {
  Tensor x = FromVector<float>(On(0), {1, 2, 3});
  // Copies to the other server and adds 1, ten times, without waiting in between.
  for (int i = 0; i < 10; ++i) x = x.To(On(i % 2 == 0 ? 1 : 0)) + 1.0;
  EXPECT_THAT(*x.Read<float>(), ElementsAre(11, 12, 13));
}

TEST_F(ClusterTest, EmptyAndSmallTensorsAreCopied) {
  EXPECT_THAT(*FromVector<float>(On(0), {}).To(On(1)).Read<float>(), ElementsAre());
  EXPECT_EQ(*FromScalar(On(0), 2.5).To(On(1)).Item<double>(), 2.5);
}

TEST_F(ClusterTest, CrossServerErrorSuggestsACopy) {
  const Tensor a = FromVector<float>(On(0), {1});
  const Tensor b = FromVector<float>(On(1), {1});
  ExpectError((a + b).status(), absl::StatusCode::kInvalidArgument,
              {"different devices", On(0).name(), On(1).name(), "copy b to the device of a"});
  EXPECT_THAT(*(a + b.To(a.device())).Read<float>(), ElementsAre(2));
}

TEST_F(ClusterTest, CopyCarriesTheErrorOfItsSource) {
  // The tensor exceeds the device's limit. The server detects that when the op runs.
  const Tensor big = Zeros(*cluster_.device(1), {32 * kMiB});
  const Tensor copy = big.To(On(1)) + 1.0;
  const absl::Status error = copy.Wait();
  ExpectError(error, absl::StatusCode::kResourceExhausted);
  // The tensor fits the source, but not the destination.
  const Tensor fits = Zeros(On(0), {32 * kMiB});
  ExpectError(fits.To(*cluster_.device(3)).Wait(), absl::StatusCode::kResourceExhausted);
  ExpectError(fits.To(*cluster_.device(3)).copy_report(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(fits.Wait().ok());
}

TEST_F(ClusterTest, FreesDroppedCopies) {
  {
    const Tensor x = Normal(On(0), {4 * kMiB}, /*seed=*/1);
    for (int i = 0; i < 20; ++i) x.To(On(1));
  }
  EXPECT_TRUE(Eventually([&] { return UsedEverywhere() == 0; })) << UsedEverywhere();
}

TEST_F(ClusterTest, SourceMayBeDroppedDuringItsCopy) {
  const Tensor copy = Normal(On(0), {kMiB}, /*seed=*/3).To(On(1));
  EXPECT_EQ(*Sum(Eq(copy, Normal(On(1), {kMiB}, /*seed=*/3))).Item<int64_t>(), kMiB);
}

TEST_F(ClusterTest, LostServerFailsOnlyItsTensors) {
  const Tensor here = FromVector<float>(On(0), {1, 2});
  const Tensor lost = FromVector<float>(On(1), {3, 4});
  ASSERT_TRUE(cluster_.Synchronize().ok());
  daemons_[1]->Signal(SIGKILL);
  ASSERT_TRUE(daemons_[1]->WaitForEnd().ok());
  // The client notices the broken connection at once. It gives the server up some time later.
  EXPECT_TRUE(Eventually([&] { return cluster_.servers()[1].state != ServerState::kConnected; }));
  const Tensor copy = lost.To(On(0));
  ExpectError(copy.Wait(), absl::StatusCode::kUnavailable, {addresses_[1]});
  ExpectError(copy.copy_report(), absl::StatusCode::kUnavailable, {addresses_[1]});
  EXPECT_FALSE(lost.Wait().ok());
  EXPECT_TRUE(Eventually([&] { return cluster_.servers()[1].state == ServerState::kLost; }));
  EXPECT_EQ(cluster_.servers()[0].state, ServerState::kConnected);
  EXPECT_THAT(*(here + 1.0).Read<float>(), ElementsAre(2, 3));
  EXPECT_FALSE(here.To(On(1)).Wait().ok());
}

class UnlistedClusterTest : public ClusterFixture {
 protected:
  UnlistedClusterTest() : ClusterFixture(2, {}) {}
};

TEST_F(UnlistedClusterTest, CopiesThroughTheClientIfServersAreNoPeers) {
  const std::vector<int32_t> values = Counting(kMiB);
  Tensor x = FromVector(On(0), values);
  const Tensor copy = x.To(On(1));
  const auto report = copy.copy_report();
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->path, CopyPath::kClient);
  EXPECT_EQ(cluster_.servers()[1].client.stats().copies_relayed, 1);
  EXPECT_EQ(report->bytes, 4 * kMiB);
  EXPECT_THAT(report->relay_reason, HasSubstr("--peers"));
  EXPECT_EQ(*copy.Read<int32_t>(), values);
  EXPECT_FALSE(report->route_skipped);
  EXPECT_GE(report->total_time, report->transfer_time);
  // The client remembers that servers can't copy directly, until it reconnects.
  const auto next = x.To(On(1)).copy_report();
  ASSERT_TRUE(next.ok()) << next.status();
  EXPECT_TRUE(next->route_skipped);
  EXPECT_EQ(next->path, CopyPath::kClient);
  EXPECT_EQ(next->relay_reason, report->relay_reason);
  EXPECT_EQ(cluster_.servers()[1].client.stats().copies_relayed, 2);
  EXPECT_EQ(cluster_.servers()[1].client.stats().copies_route_skipped, 1);
  // The same holds for copies that wait for other copies.
  for (int i = 0; i < 6; ++i) x = x.To(On(i % 2 == 0 ? 1 : 0)) + 1;
  EXPECT_EQ(*Sum(Eq(x, FromVector(x.device(), values) + 6)).Item<int64_t>(), kMiB);
}

TEST_F(UnlistedClusterTest, RetriesDirectCopiesAfterAReconnect) {
  auto proxy = proxy::DelayProxy::Start({.target = addresses_[1]});
  ASSERT_TRUE(proxy.ok()) << proxy.status();
  ClusterOptions options;
  options.connect.shared_memory = false;
  const auto cluster = Cluster::Connect({addresses_[0], (*proxy)->address()}, options);
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  const Tensor x = FromVector<float>(*cluster->device(0), {1, 2});
  const auto known = [&]() -> absl::StatusOr<bool> {
    const auto report = x.To(*cluster->device(2)).copy_report();
    if (!report.ok()) return report.status();
    return report->route_skipped;
  };
  EXPECT_FALSE(*known());
  EXPECT_TRUE(*known());
  (*proxy)->CutAll();
  const auto reconnects = [&] { return cluster->servers()[1].client.stats().reconnects; };
  ASSERT_TRUE(Eventually([&] { return reconnects() > 0; }));
  EXPECT_FALSE(*known());
}

class UnreachableClusterTest : public ClusterFixture {
 protected:
  UnreachableClusterTest()
      : ClusterFixture(
            2, {"--peers=127.0.0.1:*", "--advertise=127.0.0.1:1", "--peer-timeout-seconds=1"}) {}
};

TEST_F(UnreachableClusterTest, WaitsOnceForServersThatDontReachEachOther) {
  const Tensor x = FromVector<float>(On(0), {1, 2});
  const auto first = x.To(On(1)).copy_report();
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_EQ(first->path, CopyPath::kClient);
  EXPECT_FALSE(first->route_skipped);
  EXPECT_THAT(first->relay_reason, HasSubstr("no answer from another server for 1 s"));
  const auto next = x.To(On(1)).copy_report();
  ASSERT_TRUE(next.ok()) << next.status();
  EXPECT_TRUE(next->route_skipped);
  EXPECT_EQ(next->relay_reason, first->relay_reason);
  // The opposite direction hasn't been tried yet.
  const auto back = FromVector<float>(On(1), {1, 2}).To(On(0)).copy_report();
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_FALSE(back->route_skipped);
}

}  // namespace
}  // namespace tensord::integration
