// Four servers on separate hosts. The tests unplug one host, break the link between two servers,
// and kill and restart a server during a copy.
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tensord/client/tensord.h"
#include "tensord/tests/fault/hosts.h"
#include "tensord/tests/integration/daemon_fixture.h"
#include "tensord/tests/mib.h"

namespace tensord::fault {
namespace {

using integration::DaemonProcess;
using integration::Eventually;
using testing::Each;
using testing::HasSubstr;

constexpr int64_t kElements = 16 * kMiB;

class ClusterPartitionTest : public testing::Test {
 protected:
  explicit ClusterPartitionTest(int peer_timeout_seconds = 20)
      : peer_timeout_(absl::StrCat("--peer-timeout-seconds=", peer_timeout_seconds)) {}

  void SetUp() override {
    if (!Hosts::Get().why_not().empty()) GTEST_SKIP() << Hosts::Get().why_not();
    for (int i = 0; i < kNumServerHosts; ++i) ASSERT_NO_FATAL_FAILURE(StartServer(i));
    std::vector<std::string> addresses;
    for (int i = 0; i < kNumServerHosts; ++i) addresses.push_back(AddressOf(i));
    ClusterOptions options;
    options.connect.lease = absl::Seconds(60);
    options.connect.reconnect_timeout = absl::Seconds(20);
    options.connect.keepalive_interval = absl::Seconds(1);
    options.connect.keepalive_timeout = absl::Seconds(3);
    options.connect.shared_memory = false;
    auto cluster = Cluster::Connect(addresses, options);
    ASSERT_TRUE(cluster.ok()) << cluster.status();
    cluster_ = *std::move(cluster);
  }

  void TearDown() override {
    for (int i = 0; i < static_cast<int>(daemons_.size()); ++i) Hosts::Get().SetPlugged(i, true);
    cluster_.Close();
  }

  static std::string AddressOf(int server) {
    return absl::StrCat(Hosts::AddressOf(server), ":50051");
  }

  void StartServer(int i) {
    constexpr absl::string_view kPeers =
        "10.77.0.2:50051,10.77.0.3:50051,10.77.0.4:50051,10.77.0.5:50051";
    auto daemon = Hosts::Get().On(i, [&] {
      return DaemonProcess::Start({"--listen=" + AddressOf(i), "--advertise=" + AddressOf(i),
                                   absl::StrCat("--peers=", kPeers), peer_timeout_,
                                   "--collectives=" + Hosts::AddressOf(i),
                                   "--allow-insecure-remote", "--devices=cpu=1GiB"});
    });
    ASSERT_TRUE(daemon.ok()) << daemon.status();
    if (static_cast<int>(daemons_.size()) <= i) daemons_.resize(i + 1);
    daemons_[i] = *std::move(daemon);
  }

  Device On(int server) const { return *cluster_.device(server); }
  // Returns a tensor that depends on the seed only, so that every server can make the same tensor.
  Tensor Made(int server, int64_t seed) const { return Normal(On(server), {kElements}, seed); }
  void ExpectSame(const Tensor& copy, int64_t seed) const {
    const Tensor wanted = Normal(copy.device(), {kElements}, seed);
    const auto same = Sum(Cast(Eq(copy, wanted), DType::kInt32)).Item<int64_t>();
    ASSERT_TRUE(same.ok()) << same.status();
    EXPECT_EQ(*same, kElements);
  }

  const std::string peer_timeout_;
  std::vector<std::unique_ptr<DaemonProcess>> daemons_;
  Cluster cluster_;
};

// Has a short timeout, for tests that wait until it has passed.
class ClusterPartitionTimeoutTest : public ClusterPartitionTest {
 protected:
  ClusterPartitionTimeoutTest() : ClusterPartitionTest(/*peer_timeout_seconds=*/5) {}
};

TEST_F(ClusterPartitionTest, CopyResumesWhenTheLinkIsRestored) {
  const Tensor x = Made(0, 1);
  ASSERT_TRUE(x.Wait().ok());
  ASSERT_TRUE(Hosts::Get().SetReachable(1, 0, false));
  const Tensor over_the_cut_link = x.To(On(1));
  // The other servers aren't affected.
  const Tensor beside = x.To(On(2));
  const auto report = beside.copy_report();
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->path, CopyPath::kNetwork);
  ExpectSame(beside, 1);
  for (const ClusterServer& server : cluster_.servers()) {
    EXPECT_EQ(server.state, ServerState::kConnected) << server.name;
  }
  ASSERT_TRUE(Hosts::Get().SetReachable(1, 0, true));
  const auto mended = over_the_cut_link.copy_report();
  ASSERT_TRUE(mended.ok()) << mended.status();
  EXPECT_EQ(mended->path, CopyPath::kNetwork);
  ExpectSame(over_the_cut_link, 1);
}

TEST_F(ClusterPartitionTimeoutTest, CopyGoesThroughTheClientIfServersCantConnect) {
  const Tensor x = Made(0, 1);
  ASSERT_TRUE(Hosts::Get().SetReachable(1, 0, false));
  const Tensor copy = x.To(On(1));
  const auto report = copy.copy_report();
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->path, CopyPath::kClient);
  EXPECT_THAT(report->relay_reason, HasSubstr(AddressOf(0)));
  ExpectSame(copy, 1);
  ASSERT_TRUE(Hosts::Get().SetReachable(1, 0, true));
}

TEST_F(ClusterPartitionTest, UnpluggedServerDelaysOnlyItsOwnWork) {
  const Tensor x = Made(0, 1);
  const Tensor y = Ones(On(3), {100});
  ASSERT_TRUE(cluster_.Synchronize().ok());
  ASSERT_TRUE(Hosts::Get().SetPlugged(0, false));
  const Tensor copy = x.To(On(1));
  EXPECT_TRUE(
      Eventually([&] { return cluster_.servers()[0].state == ServerState::kReconnecting; }));
  for (int server = 1; server < kNumServerHosts; ++server) {
    EXPECT_EQ(cluster_.servers()[server].state, ServerState::kConnected);
  }
  EXPECT_THAT(*(y.To(On(2)) + 1).Read<float>(), Each(2));
  ASSERT_TRUE(Hosts::Get().SetPlugged(0, true));
  ExpectSame(copy, 1);
  ExpectSame(x, 1);
}

TEST_F(ClusterPartitionTest, CopyFailsIfItsSourceIsKilled) {
  const Tensor kept = Made(1, 7);
  // Kills the server before the source exists, and during the transfer.
  for (const auto pause : {std::chrono::milliseconds(0), std::chrono::milliseconds(20)}) {
    const Tensor copy = Made(0, 1).To(On(1));
    const Tensor result = Sum(copy);
    std::this_thread::sleep_for(pause);
    daemons_[0]->Signal(SIGKILL);
    ASSERT_TRUE(daemons_[0]->WaitForEnd().ok());
    ASSERT_NO_FATAL_FAILURE(StartServer(0));
    // The copy may have finished before. Otherwise the error says that the source has restarted.
    const auto value = result.Item<float>();
    if (!value.ok())
      ExpectError(value, absl::StatusCode::kDataLoss, {On(0).name(), "connect again"});
    ExpectError(Made(0, 1).status().ok() ? Made(0, 1).Wait() : Made(0, 1).status(),
                absl::StatusCode::kDataLoss);
    EXPECT_TRUE(Eventually([&] { return cluster_.servers()[0].state == ServerState::kLost; }));
    auto again = Cluster::Connect({AddressOf(0), AddressOf(1), AddressOf(2), AddressOf(3)}, {});
    ASSERT_TRUE(again.ok()) << again.status();
    ExpectSame(kept, 7);  // the first cluster's session on server 1 still works
    cluster_ = *std::move(again);
  }
}

TEST_F(ClusterPartitionTest, GroupThatLosesALinkEndsForAllMembers) {
  const auto group = Group::Create(cluster_.devices(), {.timeout = absl::Seconds(5)});
  ASSERT_TRUE(group.ok()) << group.status();
  const auto ones = [&] {
    std::vector<Tensor> tensors;
    for (const Device& device : cluster_.devices()) tensors.push_back(Ones(device, {kMiB}));
    return tensors;
  };
  for (const Tensor& y : group->AllReduce(ones())) EXPECT_EQ(*Max(y).Item<float>(), 4);
  ASSERT_TRUE(Hosts::Get().SetReachable(1, 0, false));
  for (const Tensor& y : group->AllReduce(ones())) {
    const absl::Status status = y.Wait();
    EXPECT_TRUE(absl::IsAborted(status) || absl::IsDeadlineExceeded(status)) << status;
  }
  ASSERT_TRUE(Hosts::Get().SetReachable(1, 0, true));
  const auto again = Group::Create(cluster_.devices());
  ASSERT_TRUE(again.ok()) << again.status();
  for (const Tensor& y : again->AllReduce(ones())) EXPECT_EQ(*Max(y).Item<float>(), 4);
}

}  // namespace
}  // namespace tensord::fault
