// Counts how often a program waits for a distant server.
//
// What is counted: all data passes a proxy. It ignores what the transport sends by itself, such as
// settings, pings and window updates (tests/proxy/frame_scanner.h). A turn begins with the first
// message of the server that reaches the client after a message of the client. Further messages of
// the server, such as acknowledgements of commands, belong to the same turn until the client sends
// again.
//
// How it is counted without a clock: while a program runs, the proxy holds all data of the server,
// so the program sends everything without an answer. If it waited for one, it would never send its
// last request, a read. Once the answer to the read is at the proxy, the server has received every
// command. Then the proxy passes the data on, and the program must end without sending another
// message. That is one round trip.
#include <gtest/gtest.h>

#include <cstdlib>
#include <functional>
#include <future>
#include <memory>
#include <vector>

#include "tensord/client/tensord.h"
#include "tensord/tests/integration/daemon_process.h"
#include "tensord/tests/proxy/delay_proxy.h"

namespace tensord::integration {
namespace {

using proxy::DelayProxy;
using proxy::Direction;
using proxy::ProxyStats;
using std::chrono::milliseconds;

// Connect() requests the server's information, its devices and a session. The handshakes of TCP
// and HTTP/2 come before and aren't counted.
constexpr int kRoundTripsToConnect = 3;

constexpr auto kOneWay = milliseconds(25);

class RttTest : public testing::Test {
 protected:
  void SetUp() override {
    auto daemon = DaemonProcess::Start({"--devices=cpu=1GiB,cpu=64MiB"});
    ASSERT_TRUE(daemon.ok()) << daemon.status();
    daemon_ = *std::move(daemon);
    auto proxy = DelayProxy::Start({.target = daemon_->address(), .one_way_delay = kOneWay});
    ASSERT_TRUE(proxy.ok()) << proxy.status();
    proxy_ = *std::move(proxy);
  }

  void Connect() {
    auto client = Client::Connect(proxy_->address());
    ASSERT_TRUE(client.ok()) << client.status();
    client_ = *std::move(client);
    cpu0_ = *client_.device("cpu:0");
    cpu1_ = *client_.device("cpu:1");
  }

  // The values that a program read, and the tensors that it made. The tensors must live while
  // round trips are counted, because the client also sends a message when a tensor is freed.
  struct Outcome {
    absl::StatusOr<std::vector<float>> values;
    std::vector<Tensor> made;
  };

  // Runs `program`, which ends with a read of at least `answer_bytes` bytes. Expects that it takes
  // one round trip.
  std::vector<float> ExpectOneRoundTrip(const std::function<Outcome()>& program,
                                        int64_t answer_bytes) {
    EXPECT_TRUE(client_.Synchronize().ok());
    proxy_->SetHeld(Direction::kToClient, true);
    const ProxyStats before = proxy_->stats();
    const ClientStats waits_before = client_.stats();
    std::future<Outcome> running = std::async(std::launch::async, program);
    const bool answered = proxy_->Await([&](const ProxyStats& stats) {
      return stats.pending_to_client_bytes - before.pending_to_client_bytes >= answer_bytes;
    });
    EXPECT_TRUE(answered) << "the program waits before its read";
    const ProxyStats asked = proxy_->stats();
    EXPECT_EQ(asked.round_trips, before.round_trips) << "nothing has been passed on";
    proxy_->SetHeld(Direction::kToClient, false);
    if (!answered || running.wait_for(std::chrono::seconds(60)) != std::future_status::ready) {
      ADD_FAILURE() << "the program doesn't end";
      proxy_->CutAll();
    }
    const Outcome outcome = running.get();
    EXPECT_TRUE(outcome.values.ok()) << outcome.values.status();
    // The answer may have come before the proxy has counted it.
    proxy_->Await([&](const ProxyStats& stats) { return stats.round_trips > before.round_trips; });
    const ProxyStats after = proxy_->stats();
    EXPECT_EQ(after.round_trips - before.round_trips, 1);
    EXPECT_EQ(after.client_bursts, asked.client_bursts) << "the client sent after the answer";
    EXPECT_EQ(client_.stats().waits - waits_before.waits, 1);
    EXPECT_EQ(client_.stats().reads.count - waits_before.reads.count, 1);
    return outcome.values.value_or(std::vector<float>());
  }

  std::unique_ptr<DaemonProcess> daemon_;
  std::unique_ptr<DelayProxy> proxy_;
  Client client_;
  Device cpu0_;
  Device cpu1_;
  std::vector<Program> programs_;  // kept, because the client sends a message when one is freed
};

TEST_F(RttTest, ConnectingTakesThreeRoundTrips) {
  // Connect() attaches the stream, and doesn't wait for the answer. The proxy holds the answer
  // back, so that it isn't counted as a round trip.
  proxy_->SetCallFault({.position = {.method = "/tensord.v1.TensorService/SessionStream",
                                     .direction = Direction::kToClient},
                        .cut = false});
  ASSERT_NO_FATAL_FAILURE(Connect());
  EXPECT_TRUE(proxy_->Await([](const ProxyStats& stats) { return stats.faults_injected == 1; }));
  EXPECT_EQ(proxy_->stats().round_trips, kRoundTripsToConnect);
  EXPECT_EQ(client_.stats().waits, 0) << "waits of Connect() aren't counted";
}

TEST_F(RttTest, HundredOpsAndAReadTakeOneRoundTrip) {
  ASSERT_NO_FATAL_FAILURE(Connect());
  const Tensor one = Ones(cpu0_, {1000});
  const auto program = [&]() -> Outcome {
    std::vector<Tensor> made{one};
    for (int i = 0; i < 100; ++i) made.push_back(Add(made.back(), one));
    return {made.back().Read<float>(), made};
  };
  EXPECT_EQ(ExpectOneRoundTrip(program, 4000), std::vector<float>(1000, 101.0f));
}

TEST_F(RttTest, ModelOnResidentWeightsTakesOneRoundTrip) {
  ASSERT_NO_FATAL_FAILURE(Connect());
  nn::Sequential model(nn::Linear(64, 128), nn::ReLU(), nn::Linear(128, 64), nn::ReLU(),
                       nn::Linear(64, 10));
  ASSERT_TRUE(model.To(cpu0_).ok());
  const Tensor ones = Ones(cpu0_, {100, 64});
  const auto here = model.Forward(ones).Read<float>();
  ASSERT_TRUE(here.ok()) << here.status();

  std::vector<Tensor> steps;  // the modules' own intermediates
  const auto program = [&]() -> Outcome {
    steps.push_back(ones);
    for (int i = 0; i < model.size(); ++i) steps.push_back(model[i].Forward(steps.back()));
    return {steps.back().Read<float>(), steps};
  };
  EXPECT_EQ(ExpectOneRoundTrip(program, 4000), *here);
}

TEST_F(RttTest, RecordingRunningAndReadingTakeOneRoundTrip) {
  ASSERT_NO_FATAL_FAILURE(Connect());
  const Tensor one = Ones(cpu0_, {1000});
  const auto record_and_run = [&]() -> Outcome {
    const auto step = Program::Record(cpu0_, {one.spec()}, [&](absl::Span<const Tensor> inputs) {
      Tensor y = inputs[0];
      for (int i = 0; i < 100; ++i) y = Add(y, one);
      return std::vector<Tensor>{y};
    });
    if (!step.ok()) return {step.status(), {}};
    std::vector<Tensor> made{one};
    for (int run = 0; run < 3; ++run) made.push_back(step->Run({made.back()})[0]);
    programs_.push_back(*step);
    return {made.back().Read<float>(), made};
  };
  EXPECT_EQ(ExpectOneRoundTrip(record_and_run, 4000), std::vector<float>(1000, 301.0f));
}

TEST_F(RttTest, ForwardOfAModelWaitsOnce) {
  ASSERT_NO_FATAL_FAILURE(Connect());
  nn::Sequential model(nn::Linear(64, 128), nn::ReLU(), nn::Linear(128, 64), nn::ReLU(),
                       nn::Linear(64, 10));
  ASSERT_TRUE(model.To(cpu0_).ok());
  ASSERT_TRUE(client_.Synchronize().ok());
  const ClientStats before = client_.stats();
  ASSERT_TRUE(model.Forward(Ones(cpu0_, {100, 64})).Read<float>().ok());
  EXPECT_EQ(client_.stats().waits - before.waits, 1);
}

TEST_F(RttTest, SmallConstantsAndCopiesAddNoRoundTrip) {
  ASSERT_NO_FATAL_FAILURE(Connect());
  const Tensor x = Ones(cpu0_, {1000});
  const auto program = [&]() -> Outcome {
    std::vector<Tensor> made;
    made.push_back(FromVector(cpu0_, std::vector<float>(1000, 2.0f)));
    made.push_back(x + made[0]);
    made.push_back(made[1].To(cpu1_));
    made.push_back(Full(cpu1_, {}, 4.0, {.dtype = DType::kFloat32}));
    made.push_back(made[2] * made[3]);
    made.push_back(made[4].To(cpu0_));
    made.push_back(made[5].To(cpu0_));  // already on this device
    return {made.back().Read<float>(), made};
  };
  EXPECT_EQ(ExpectOneRoundTrip(program, 4000), std::vector<float>(1000, 12.0f));
}

TEST_F(RttTest, ReadReportsEarlierFailures) {
  ASSERT_NO_FATAL_FAILURE(Connect());
  ASSERT_TRUE(client_.Synchronize().ok());
  const ClientStats before = client_.stats();
  const Tensor big = Ones(cpu1_, {32 << 20});  // 128 MiB, and the device has 64
  const auto sum = Sum(big + big).Item<float>();
  EXPECT_EQ(sum.status().code(), absl::StatusCode::kResourceExhausted) << sum.status();
  EXPECT_EQ(client_.stats().waits - before.waits, 1);
}

TEST_F(RttTest, EveryWaitIsCountedWithItsKind) {
  ASSERT_NO_FATAL_FAILURE(Connect());
  EXPECT_EQ(client_.stats().waits, 0);
  const Tensor x = FromVector(cpu0_, std::vector<float>(100000, 1.0f));
  EXPECT_EQ(client_.stats().uploads.count, 1) << "too large to be sent inline";
  ASSERT_TRUE(x.Wait().ok());
  EXPECT_EQ(client_.stats().tensor_waits.count, 1);
  ASSERT_TRUE(x.Read<float>().ok());
  EXPECT_EQ(client_.stats().reads.count, 1);
  ASSERT_TRUE(Add(x, x).status().ok());
  ASSERT_TRUE(client_.Synchronize().ok());
  EXPECT_EQ(client_.stats().synchronizes.count, 1);
  ASSERT_TRUE(client_.GetServerInfo().ok());
  EXPECT_EQ(client_.stats().info_calls.count, 1);
  const ClientStats stats = client_.stats();
  EXPECT_EQ(stats.full_queue_waits.count, 0);
  EXPECT_EQ(stats.waits, 5);
  EXPECT_GE(stats.info_calls.time, 2 * absl::FromChrono(kOneWay));
  EXPECT_EQ(stats.waited, stats.reads.time + stats.uploads.time + stats.tensor_waits.time +
                              stats.synchronizes.time + stats.info_calls.time);
}

TEST_F(RttTest, LogsTracedWaitsOnStandardError) {
  testing::GTEST_FLAG(death_test_style) = "threadsafe";  // runs the statement in a new process
  const auto traced_read = [this] {
    setenv("TENSORD_TRACE", "1", /*overwrite=*/1);
    Connect();
    std::_Exit(Ones(cpu0_, {64}).Read<float>().ok() ? 0 : 1);
  };
  EXPECT_EXIT(traced_read(), testing::ExitedWithCode(0),
              "tensord: waited [0-9.]+ ms for read of float32\\[64\\], handle [0-9]+, 256 bytes");
}

TEST_F(RttTest, CountsWaitsForAFullPipeSeparately) {
  auto client = Client::Connect(proxy_->address(), {.max_pending_commands = 4});
  ASSERT_TRUE(client.ok()) << client.status();
  const Tensor one = Ones(*client->device("cpu:0"), {1});
  std::vector<Tensor> kept;
  for (int i = 0; i < 10; ++i) kept.push_back(Add(one, one));
  EXPECT_GE(client->stats().full_queue_waits.count, 1);
  EXPECT_EQ(client->stats().waits, client->stats().full_queue_waits.count);
}

}  // namespace
}  // namespace tensord::integration
