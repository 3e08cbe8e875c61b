// Client and server on two hosts. The tests unplug the cable between them; neither the client nor
// the server is notified.
#include <unistd.h>

#include <fstream>
#include <future>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tensord/client/tensord.h"
#include "tensord/tests/fault/hosts.h"
#include "tensord/tests/integration/daemon_fixture.h"

namespace tensord::fault {
namespace {

using integration::DaemonProcess;
using integration::Eventually;
using integration::RpcClient;
using integration::UsedBytes;
using testing::Each;

constexpr char kServer[] = "10.77.0.2:50051";

// Returns the number of this host's established connections.
int Connections() {
  int established = 0;
  for (const char* path : {"/proc/thread-self/net/tcp", "/proc/thread-self/net/tcp6"}) {
    std::ifstream table(path);
    std::string line;
    while (std::getline(table, line)) {
      std::istringstream words(line);
      std::string number, local, remote, state;
      words >> number >> local >> remote >> state;
      established += state == "01";
    }
  }
  return established;
}

class PartitionTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!Hosts::Get().why_not().empty()) GTEST_SKIP() << Hosts::Get().why_not();
    socket_ = absl::StrCat("unix:", testing::TempDir(), "/partition.", getpid());
    auto daemon = Hosts::Get().On(0, [&] {
      return DaemonProcess::Start({absl::StrCat("--listen=", kServer, ",", socket_),
                                   "--allow-insecure-remote", "--devices=cpu=1GiB"});
    });
    ASSERT_TRUE(daemon.ok()) << daemon.status();
    daemon_ = *std::move(daemon);
    // A Unix socket connects processes in different network namespaces.
    rpc_ = std::make_unique<RpcClient>(socket_);
  }
  void TearDown() override {
    if (daemon_ == nullptr) return;
    EXPECT_TRUE(Hosts::Get().SetPlugged(0, true));
    daemon_->ExpectTerminatesCleanly();
  }

  Client Connect(absl::Duration lease) {
    auto client = Client::Connect(kServer, {.lease = lease,
                                            .reconnect_timeout = absl::Minutes(1),
                                            .keepalive_interval = absl::Seconds(1),
                                            .keepalive_timeout = absl::Seconds(1),
                                            .shared_memory = false});
    EXPECT_TRUE(client.ok()) << client.status();
    return *std::move(client);
  }

  int64_t Used() { return UsedBytes(*rpc_, "cpu:0"); }

  // Unplugs the cable, and plugs it in again when the client has closed its connection.
  static void PullForAWhile() {
    const int before = Connections();
    EXPECT_TRUE(Hosts::Get().SetPlugged(0, false));
    EXPECT_TRUE(Eventually([before] { return Connections() < before; }));
    EXPECT_TRUE(Hosts::Get().SetPlugged(0, true));
  }

  std::string socket_;
  std::unique_ptr<DaemonProcess> daemon_;
  std::unique_ptr<RpcClient> rpc_;
};

TEST_F(PartitionTest, ClientRecoversFromShortPartition) {
  const Client client = Connect(absl::Seconds(60));
  const Device device = *client.device("cpu:0");
  Tensor x = Ones(device, {1000});
  ASSERT_TRUE(client.Synchronize().ok());
  auto pulled = std::async(std::launch::async, PullForAWhile);
  float expected = 1;
  while (pulled.wait_for(std::chrono::seconds(0)) != std::future_status::ready) {
    for (int i = 0; i < 100; ++i) x = x + 1;
    expected += 100;
    const auto values = x.Read<float>();
    ASSERT_TRUE(values.ok()) << values.status();
    ASSERT_THAT(*values, Each(expected));
  }
  EXPECT_THAT(*(x + 1).Read<float>(), Each(expected + 1));
  EXPECT_GE(client.stats().reconnects, 1);
}

TEST_F(PartitionTest, TransfersResumeAfterPartition) {
  const Client client = Connect(absl::Seconds(60));
  const Device device = *client.device("cpu:0");
  std::vector<float> data(32 << 20);
  for (size_t i = 0; i < data.size(); ++i) data[i] = static_cast<float>(i % 1000003);
  std::future<void> pulled;
  const auto pull_halfway = [&](int64_t done, int64_t total) {
    if (done < total / 2 || pulled.valid()) return;
    pulled = std::async(std::launch::async, PullForAWhile);
  };
  const auto tensor = FromSpan<float>(device, {32 << 20}, data, {.progress = pull_halfway});
  ASSERT_TRUE(tensor.status().ok()) << tensor.status();
  pulled.get();
  std::vector<float> back(data.size());
  const absl::Status read =
      tensor.ReadInto<float>(absl::MakeSpan(back), {.progress = pull_halfway});
  ASSERT_TRUE(read.ok()) << read;
  EXPECT_EQ(back, data);
  pulled.get();
}

TEST_F(PartitionTest, PartitionLongerThanTheLeaseEndsTheSession) {
  const Client client = Connect(absl::Seconds(1));
  const Tensor x = Ones(*client.device("cpu:0"), {1000});
  ASSERT_TRUE(x.Wait().ok());
  ASSERT_GT(Used(), 0);
  ASSERT_TRUE(Hosts::Get().SetPlugged(0, false));
  // The server must end the session while the cable is unplugged. It notices after 20 seconds, or
  // later on a busy machine, so one limit of Eventually() may not be enough.
  const auto freed = [&] { return Used() == 0; };
  EXPECT_TRUE(Eventually(freed) || Eventually(freed)) << Used();
  ASSERT_TRUE(Hosts::Get().SetPlugged(0, true));
  ExpectError(x.Read<float>(), absl::StatusCode::kDataLoss, {"lease"});
  const Client again = Connect(absl::Seconds(1));
  EXPECT_THAT(*Ones(*again.device("cpu:0"), {4}).Read<float>(), Each(1.0f));
}

}  // namespace
}  // namespace tensord::fault
