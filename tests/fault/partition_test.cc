// Two hosts with a cable between them, which is pulled: network namespaces (network_namespaces(7))
// that are the test's own and go with it. Nobody is told of it, neither client nor server.
#include <fcntl.h>
#include <sched.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <fstream>
#include <future>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tensord/client/tensord.h"
#include "tensord/tests/integration/daemon_fixture.h"

namespace tensord::fault {
namespace {

using integration::DaemonProcess;
using integration::Eventually;
using integration::ExpectError;
using integration::RpcClient;
using integration::UsedBytes;
using testing::Each;

constexpr char kServer[] = "10.77.0.2:50051";

bool Shell(const std::string& command) {
  return std::system((command + " >/dev/null 2>&1").c_str()) == 0;
}

void WriteFile(const std::string& path, const std::string& text) { std::ofstream(path) << text; }

// This process's host and the server's, made before there are threads.
class Hosts final : public testing::Environment {
 public:
  static Hosts& Get() {
    static auto* const hosts = new Hosts;
    return *hosts;
  }

  void SetUp() override { why_not_ = Make(); }

  // Empty where the hosts are there.
  const std::string& why_not() const { return why_not_; }

  // Runs `start` as if on the server's host: processes that it starts are there.
  template <typename Start>
  auto OnServer(Start start) const {
    setns(server_, CLONE_NEWNET);
    auto result = start();
    setns(client_, CLONE_NEWNET);
    return result;
  }

  // The cable, at the server's end.
  bool SetPlugged(bool plugged) const {
    return Shell(InServer(absl::StrCat("ip link set s0 ", plugged ? "up" : "down")));
  }

 private:
  std::string InServer(const std::string& command) const {
    return absl::StrCat("nsenter --net=/proc/self/fd/", server_, " ", command);
  }

  std::string Make() {
    const std::string uid = std::to_string(getuid());
    const std::string gid = std::to_string(getgid());
    if (unshare(CLONE_NEWUSER | CLONE_NEWNET) == 0) {
      WriteFile("/proc/self/setgroups", "deny");
      WriteFile("/proc/self/uid_map", "0 " + uid + " 1");
      WriteFile("/proc/self/gid_map", "0 " + gid + " 1");
    } else if (unshare(CLONE_NEWNET) != 0) {
      return "no network namespaces may be made here";
    }
    client_ = open("/proc/thread-self/ns/net", O_RDONLY);
    if (client_ < 0 || unshare(CLONE_NEWNET) != 0) return "no second network namespace";
    server_ = open("/proc/thread-self/ns/net", O_RDONLY);
    if (server_ < 0 || setns(client_, CLONE_NEWNET) != 0) return "namespaces can't be entered";
    const bool made =
        Shell("ip link set lo up") && Shell("ip link add c0 type veth peer name s0") &&
        Shell(absl::StrCat("ip link set s0 netns /proc/self/fd/", server_)) &&
        Shell("ip addr add 10.77.0.1/24 dev c0") && Shell("ip link set c0 up") &&
        Shell(InServer("ip link set lo up")) && Shell(InServer("ip link set s0 up")) &&
        Shell(InServer("ip addr add 10.77.0.2/24 dev s0"));
    return made ? "" : "ip(8) can't make a pair of interfaces here";
  }

  std::string why_not_;
  int client_ = -1;  // the namespaces
  int server_ = -1;
};

const auto* const kHosts = testing::AddGlobalTestEnvironment(&Hosts::Get());

// Established connections of this host.
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
    auto daemon = Hosts::Get().OnServer([&] {
      return DaemonProcess::Start({absl::StrCat("--listen=", kServer, ",", socket_),
                                   "--allow-insecure-remote", "--devices=cpu=1GiB"});
    });
    ASSERT_TRUE(daemon.ok()) << daemon.status();
    daemon_ = *std::move(daemon);
    // Sockets of files reach from one host to the other.
    rpc_ = std::make_unique<RpcClient>(socket_);
  }
  void TearDown() override {
    if (daemon_ == nullptr) return;
    EXPECT_TRUE(Hosts::Get().SetPlugged(true));
    EXPECT_EQ(*daemon_->Terminate(), 0) << daemon_->Output();
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

  // Pulls the cable, and plugs it in again once the client has noticed.
  static void PullForAWhile() {
    const int before = Connections();
    EXPECT_TRUE(Hosts::Get().SetPlugged(false));
    EXPECT_TRUE(Eventually([before] { return Connections() < before; }));
    EXPECT_TRUE(Hosts::Get().SetPlugged(true));
  }

  std::string socket_;
  std::unique_ptr<DaemonProcess> daemon_;
  std::unique_ptr<RpcClient> rpc_;
};

TEST_F(PartitionTest, AShortOneCostsNothingButTime) {
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

TEST_F(PartitionTest, TransfersGoOnAfterwards) {
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

TEST_F(PartitionTest, AfterTheLeaseNothingIsLeftAndTheClientIsTold) {
  const Client client = Connect(absl::Seconds(1));
  const Tensor x = Ones(*client.device("cpu:0"), {1000});
  ASSERT_TRUE(x.Wait().ok());
  ASSERT_GT(Used(), 0);
  ASSERT_TRUE(Hosts::Get().SetPlugged(false));
  // The server finds out by itself, while there is still no cable.
  EXPECT_TRUE(Eventually([&] { return Used() == 0; })) << Used();
  ASSERT_TRUE(Hosts::Get().SetPlugged(true));
  ExpectError(x.Read<float>(), absl::StatusCode::kDataLoss, {"lease"});
  const Client again = Connect(absl::Seconds(1));
  EXPECT_THAT(*Ones(*again.device("cpu:0"), {4}).Read<float>(), Each(1.0f));
}

}  // namespace
}  // namespace tensord::fault
