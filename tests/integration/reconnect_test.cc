// A client whose connections break at any point: it reconnects by itself, and the server applies
// each command once.
#include <atomic>
#include <future>
#include <optional>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "tensord/client/tensord.h"
#include "tensord/tests/integration/daemon_fixture.h"
#include "tensord/tests/proxy/cut_limiter.h"
#include "tensord/tests/proxy/delay_proxy.h"

namespace tensord::integration {
namespace {

using Code = absl::StatusCode;
using proxy::DelayProxy;
using proxy::Direction;
using testing::Each;

class ReconnectTest : public testing::Test {
 protected:
  void SetUp() override {
    auto daemon = DaemonProcess::Start({"--devices=cpu=1GiB,cpu=64MiB"});
    ASSERT_TRUE(daemon.ok()) << daemon.status();
    daemon_ = *std::move(daemon);
    // A cut loses the bytes that the proxy holds, so the proxy holds few.
    auto proxy = DelayProxy::Start({.target = daemon_->address(), .max_buffered_bytes = 2 << 20});
    ASSERT_TRUE(proxy.ok()) << proxy.status();
    proxy_ = *std::move(proxy);
    rpc_ = std::make_unique<RpcClient>(daemon_->address());
  }

  // Connects through the proxy, without shared memory.
  Client Connect(ConnectOptions options = {}) {
    options.shared_memory = false;
    auto client = Client::Connect(proxy_->address(), options);
    EXPECT_TRUE(client.ok()) << client.status();
    return *std::move(client);
  }

  int64_t Used() { return UsedBytes(*rpc_, "cpu:0"); }

  // Cuts all connections again and again, at random times, until this object is
  // destroyed.
  class Cutter {
   public:
    Cutter(DelayProxy* proxy, int max_microseconds)
        : thread_([this, proxy, max_microseconds] {
            std::minstd_rand random(max_microseconds);
            proxy::CutLimiter limiter(proxy);
            while (!done_) {
              std::this_thread::sleep_for(std::chrono::microseconds(random() % max_microseconds));
              limiter.CutAll();
            }
          }) {}
    ~Cutter() {
      done_ = true;
      thread_.join();
    }

   private:
    std::atomic<bool> done_{false};
    std::thread thread_;
  };

  std::unique_ptr<DaemonProcess> daemon_;
  std::unique_ptr<DelayProxy> proxy_;
  std::unique_ptr<RpcClient> rpc_;
};

TEST_F(ReconnectTest, HandlesOutliveTheConnection) {
  const Client client = Connect();
  const Device device = *client.device("cpu:0");
  const Tensor x = FromVector<float>(device, {1, 2, 3});
  ASSERT_TRUE(client.Synchronize().ok());
  proxy_->CutAll();
  EXPECT_THAT(*(x + x).Read<float>(), testing::ElementsAre(2, 4, 6));
  EXPECT_EQ(client.stats().reconnects, 1);
  EXPECT_TRUE(client.status().ok());
}

// Each op adds one to a sum, so the sum shows whether an op is lost or applied twice.
TEST_F(ReconnectTest, EveryOpIsAppliedOnce) {
  const Client client = Connect();
  const Device device = *client.device("cpu:0");
  const int64_t before = Used();
  {
    Cutter cutter(proxy_.get(), 30000);
    const Tensor one = Ones(device, {8});
    Tensor sum = Zeros(device, {8});
    float expected = 0;
    while (client.stats().reconnects < 20) {
      ASSERT_LT(expected, 1 << 24) << "the cuts do not reach the client";
      for (int i = 0; i < 50; ++i) sum = sum + one;
      expected += 50;
      const auto values = sum.Read<float>();
      ASSERT_TRUE(values.ok()) << values.status();
      ASSERT_THAT(*values, Each(expected)) << client.stats().reconnects << " reconnects";
    }
  }
  EXPECT_TRUE(client.Synchronize().ok());
  // Tensors that were dropped during a cut are freed.
  ExpectEventuallyUsed([this] { return Used(); }, before);
}

// Nothing is read in between, so that answers and commands pile up.
TEST_F(ReconnectTest, LongChainsSurviveCuts) {
  const Client client = Connect();
  const Device device = *client.device("cpu:0");
  const Tensor one = Ones(device, {8});
  Tensor sum = Zeros(device, {8});
  {
    Cutter cutter(proxy_.get(), 20000);
    for (int i = 0; i < 200000; ++i) sum = sum + one;
    ASSERT_THAT(*sum.Read<float>(), Each(200000.0f));
  }
  EXPECT_TRUE(client.Synchronize().ok());
}

TEST_F(ReconnectTest, ErrorsAreReportedOnceAndNotLost) {
  const Client client = Connect();
  const Device device = *client.device("cpu:1");  // of 64 MiB
  for (int round = 0; round < 10; ++round) {
    proxy_->SetHeld(Direction::kToClient, true);
    const Tensor huge = Zeros(device, {64 << 20});
    const Tensor dependent = huge + huge;
    proxy_->CutAll();
    proxy_->SetHeld(Direction::kToClient, false);
    const absl::Status status = client.Synchronize();
    ExpectError(status, Code::kResourceExhausted);
    EXPECT_TRUE(client.Synchronize().ok());
  }
}

TEST_F(ReconnectTest, ManyThreadsWaitThroughCuts) {
  const Client client = Connect();
  const Device device = *client.device("cpu:0");
  Cutter cutter(proxy_.get(), 50000);
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&, t] {
      const Tensor x = Full(device, {16}, static_cast<float>(t));
      for (int i = 0; i < 50; ++i) {
        const auto values = (x + i).Read<float>();
        ASSERT_TRUE(values.ok()) << values.status();
        ASSERT_THAT(*values, Each(static_cast<float>(t + i)));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST_F(ReconnectTest, ProgramsAndDefinitionsSurviveCuts) {
  const Client client = Connect();
  const Device device = *client.device("cpu:0");
  const auto program = Program::Record(device, {{DType::kFloat32, {4}}}, [](auto in) {
    return std::vector<Tensor>{Relu(in[0] * 2) + 1};
  });
  ASSERT_TRUE(program.ok()) << program.status();
  const Tensor x = FromVector<float>(device, {-1, 0, 1, 2});
  for (int i = 0; i < 5; ++i) {
    EXPECT_THAT(*program->Run({x})[0].Read<float>(), testing::ElementsAre(1, 1, 3, 5));
    proxy_->CutAll();
  }
}

// The network is slow enough for every transfer to be cut several times.
TEST_F(ReconnectTest, TransfersResume) {
  const Client client = Connect();
  const Device device = *client.device("cpu:0");
  std::vector<float> data(8 << 20);
  for (size_t i = 0; i < data.size(); ++i) data[i] = static_cast<float>(i % 1000003);
  const int64_t passed = proxy_->stats().bytes_to_server;
  proxy_->SetBandwidth(64 << 20);
  int last = 0;
  {
    // Cuts after each eighth. Bytes that have arrived aren't sent again.
    const auto tensor =
        FromSpan<float>(device, {8 << 20}, data, {.progress = [&](int64_t done, int64_t total) {
                          const int eighth = static_cast<int>(done * 8 / total);
                          if (std::exchange(last, std::max(last, eighth)) < eighth && eighth < 8)
                            proxy_->CutAll();
                        }});
    ASSERT_TRUE(tensor.status().ok()) << tensor.status();
    EXPECT_GE(client.stats().reconnects, 1);
    // Starting again each time would send 4.5 times as much. Bytes in flight at a cut are lost.
    EXPECT_LT(proxy_->stats().bytes_to_server - passed, 3 * 4 * static_cast<int64_t>(data.size()));
    last = 0;
    std::vector<float> back(data.size());
    const absl::Status read = tensor.ReadInto<float>(
        absl::MakeSpan(back), {.progress = [&](int64_t done, int64_t total) {
          const int eighth = static_cast<int>(done * 8 / total);
          if (std::exchange(last, std::max(last, eighth)) < eighth && eighth < 8) proxy_->CutAll();
        }});
    ASSERT_TRUE(read.ok()) << read;
    EXPECT_EQ(back, data);
  }
  EXPECT_TRUE(client.Synchronize().ok());
  EXPECT_TRUE(Eventually([&] { return Used() == 0; }));
}

TEST_F(ReconnectTest, UploadsSurviveRandomCuts) {
  const Client client = Connect();
  const Device device = *client.device("cpu:0");
  Cutter cutter(proxy_.get(), 40000);
  std::vector<float> data(1 << 20);
  for (int i = 0; i < 20; ++i) {
    for (size_t j = 0; j < data.size(); ++j) data[j] = static_cast<float>(i + j % 97);
    const Tensor x = FromSpan<float>(device, {1 << 20}, data);
    const auto back = x.Read<float>();
    ASSERT_TRUE(back.ok()) << back.status();
    ASSERT_EQ(*back, data) << i;
  }
}

// Simulates a cable that is pulled: neither end is notified.
TEST_F(ReconnectTest, DetectsASilentNetwork) {
  const Client client =
      Connect({.keepalive_interval = absl::Seconds(1), .keepalive_timeout = absl::Seconds(1)});
  const Device device = *client.device("cpu:0");
  const Tensor x = Ones(device, {4});
  ASSERT_TRUE(client.Synchronize().ok());
  proxy_->SetDiscarding(Direction::kToServer, true);
  proxy_->SetDiscarding(Direction::kToClient, true);
  auto reader = std::async(std::launch::async, [&] { return (x + 1).Read<float>(); });
  // The bytes of the old connection stay lost.
  const int64_t accepted = proxy_->stats().accepted;
  EXPECT_TRUE(proxy_->Await([&](const auto& stats) { return stats.accepted > accepted; }));
  proxy_->SetDiscarding(Direction::kToServer, false);
  proxy_->SetDiscarding(Direction::kToClient, false);
  const auto values = reader.get();
  ASSERT_TRUE(values.ok()) << values.status();
  EXPECT_THAT(*values, Each(2.0f));
}

TEST_F(ReconnectTest, RestartedServerIsDataLoss) {
  const Client client = Connect();
  const Tensor x = Ones(*client.device("cpu:0"), {4});
  ASSERT_TRUE(x.Wait().ok());
  daemon_->Signal(SIGKILL);
  ASSERT_TRUE(daemon_->WaitForEnd().ok());
  auto again = DaemonProcess::Start({"--devices=cpu", "--listen=" + daemon_->address()});
  ASSERT_TRUE(again.ok()) << again.status();
  const auto values = x.Read<float>();
  ExpectError(values, Code::kDataLoss, {"epoch"});
  ExpectError(client.Synchronize(), Code::kDataLoss);
}

TEST_F(ReconnectTest, ExpiredLeaseIsDataLoss) {
  const Client client = Connect({.lease = absl::Seconds(1), .reconnect_timeout = absl::Minutes(1)});
  const Tensor x = Ones(*client.device("cpu:0"), {1000});
  ASSERT_TRUE(x.Wait().ok());
  proxy_->SetAccepting(false);
  proxy_->CutAll();
  EXPECT_TRUE(Eventually([&] { return Used() == 0; }));
  proxy_->SetAccepting(true);
  ExpectError(x.Read<float>(), Code::kDataLoss, {"lease"});
}

TEST_F(ReconnectTest, GivesUpInTime) {
  const Client client = Connect({.reconnect_timeout = absl::Milliseconds(300)});
  const Tensor x = Ones(*client.device("cpu:0"), {4});
  ASSERT_TRUE(x.Wait().ok());
  proxy_->SetAccepting(false);
  proxy_->CutAll();
  ExpectError(
      x.Read<float>(), Code::kUnavailable,
      {proxy_->address(), "300ms", "ConnectOptions::reconnect_timeout", "make a new Client"});
}

TEST_F(ReconnectTest, ConnectRetriesIfNewConnectionsAreReset) {
  proxy_->SetResets(2);
  auto client = Client::Connect(proxy_->address(), {.shared_memory = false});
  ASSERT_TRUE(client.ok()) << client.status();
  EXPECT_EQ(*Sum(Ones(*client->device("cpu:0"), {4})).Item<float>(), 4);
}

// The timeout is infinite. Connect() gives up because every connection is closed.
TEST_F(ReconnectTest, ConnectFailsIfEveryConnectionIsClosed) {
  proxy_->SetResets(1 << 20);
  ExpectError(Client::Connect(proxy_->address(), {.connect_timeout = absl::InfiniteDuration()}),
              Code::kUnavailable,
              {"closes the connection", "TENSORD_TLS_CA", "not a tensord server"});
}

// A client may be destroyed at the moment at which it gives up.
TEST_F(ReconnectTest, ClientMayBeDestroyedAsItGivesUp) {
  constexpr auto kReconnectTimeout = std::chrono::milliseconds(30);
  std::vector<std::thread> programs;
  std::vector<std::optional<Client>> clients(100);
  for (auto& client : clients) {
    client = Connect({.reconnect_timeout = absl::FromChrono(kReconnectTimeout)});
  }
  proxy_->SetAccepting(false);
  proxy_->CutAll();
  const auto lost = std::chrono::steady_clock::now();
  for (size_t i = 0; i < clients.size(); ++i) {
    programs.emplace_back([&, i] {
      std::this_thread::sleep_until(lost + kReconnectTimeout + std::chrono::microseconds(20 * i));
      clients[i].reset();
    });
  }
  for (std::thread& program : programs) program.join();
}

TEST_F(ReconnectTest, DoesNotReconnectAfterADrain) {
  const Client client = Connect();
  const Tensor x = Ones(*client.device("cpu:0"), {4});
  ASSERT_TRUE(x.Wait().ok());
  daemon_->ExpectTerminatesCleanly();
  // The client doesn't try to reconnect.
  ExpectError(x.Read<float>(), Code::kUnavailable);
  EXPECT_EQ(client.stats().reconnects, 0);
}

}  // namespace
}  // namespace tensord::integration
