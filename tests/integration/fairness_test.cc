// Clients that share a device: a slow, silent or lost client doesn't block the other clients.
#include <atomic>
#include <functional>
#include <string>
#include <thread>
#include <utility>

#include "tensord/tests/integration/client_fixture.h"
#include "tensord/tests/sanitized.h"

namespace tensord::integration {
namespace {

using testing::Each;

class FairnessTest : public ClientFixture {
 protected:
  // Runs an op and reads its result, `times` times. Expects the right result each time.
  void ExpectServed(const Client& client, int times) {
    const Device device = *client.device("cpu:0");
    for (int i = 0; i < times; ++i) {
      const auto sum = (Ones(device, {64}) + Ones(device, {64})).Read<float>();
      ASSERT_TRUE(sum.ok()) << sum.status();
      ASSERT_THAT(*sum, Each(2.0f));
    }
  }

  Client ConnectClient() {
    auto client = Client::Connect(daemon_->address());
    EXPECT_TRUE(client.ok()) << client.status();
    return *std::move(client);
  }
};

// Each large op takes about ten milliseconds. The other client waits for one of them at a time, and
// not for the whole queue.
TEST_F(FairnessTest, LargeOpsDoNotBlockOtherClients) {
  const Client other = ConnectClient();
  RpcClient rpc(daemon_->address());
  ExpectServed(other, 1);
  const Tensor x = Full(first_, {1024, 1024}, 1e-3);
  ASSERT_TRUE(client_.Synchronize().ok());
  std::atomic<bool> done{false};
  std::thread busy([&] {
    Tensor y = x;
    for (int i = 0; i < 200; ++i) y = Matmul(y, x);
    EXPECT_TRUE(y.Read<float>().ok());
    done = true;
  });
  // Waits until several ops are queued.
  EXPECT_TRUE(Eventually([&] { return UsedBytes(rpc, "cpu:0") >= (8 << 20) || done; }));
  ExpectServed(other, 10);
  EXPECT_FALSE(done) << "the other client had to wait for all of the queue";
  busy.join();
}

// Each op takes many seconds. At its stop points, the server runs short ops of others, although all
// callers are the same principal.
TEST_F(FairnessTest, OneLongOpDoesNotBlockOtherClients) {
  const std::pair<std::string, std::function<Tensor(const Device&)>> ops[] = {
      {"matmul",
       [](const Device& device) {
         const Tensor x = Ones(device, {4000, 4000}, {.dtype = DType::kInt64});
         return Matmul(x, x);
       }},
      {"conv", [](const Device& device) {
         return Conv2d(Ones(device, {8, 64, 128, 128}, {.dtype = DType::kFloat64}),
                       Ones(device, {64, 64, 31, 31}, {.dtype = DType::kFloat64}));
       }}};
  RpcClient rpc(daemon_->address());
  for (const auto& [name, run] : ops) {
    SCOPED_TRACE(name);
    const Client other = ConnectClient();
    const Tensor result = run(*other.device("cpu:0"));
    ASSERT_TRUE(result.ok()) << result.status();
    ExpectServed(client_, 20);
    const auto sessions =
        rpc.Call<v1::ListSessionsResponse>("ListSessions", v1::ListSessionsRequest());
    ASSERT_TRUE(sessions.ok()) << sessions.status();
    int64_t in_flight = 0;
    for (const v1::SessionInfo& session : sessions->sessions()) {
      in_flight += session.ops_in_flight();
    }
    EXPECT_GT(in_flight, 0) << "the long op ended before the short ops were served";
  }
}

// The client requests answers but reads none. The server buffers a bounded number of them.
TEST_F(FairnessTest, ClientThatReadsNothingBlocksNoOtherClient) {
  RpcClient rpc(daemon_->address());
  RpcSession session(rpc);
  ASSERT_TRUE(session.Ones(1, {256 * 1024}).ok());
  auto silent = rpc.SessionStream();
  v1::SessionStreamRequest message = session.Attach();
  for (int i = 0; i < 1000; ++i) {
    v1::GetElements& get = *message.add_commands()->mutable_get_elements();
    get.set_handle(1);
    get.set_request_id(i + 1);
  }
  const int64_t before = daemon_->MemoryBytes("VmHWM");
  ASSERT_TRUE(silent->Send(message));
  ExpectServed(client_, 100);
  // A sanitizer's shadow is counted as the daemon's memory.
  if (!kSanitized) EXPECT_LT(daemon_->MemoryBytes("VmHWM") - before, 64 << 20);
  silent->Cancel();
  ExpectServed(client_, 1);
}

// The attacker sends long programs and drops them at once. The server must serve other clients
// before it has applied all these messages.
TEST_F(FairnessTest, LongMessagesDoNotBlockOtherClients) {
  constexpr int kMessages = 30;
  RpcClient rpc(daemon_->address());
  rpc.set_deadline_seconds(600);
  RpcSession session(rpc);
  ASSERT_TRUE(session.Ones(1, {16}).ok());
  std::vector<v1::SessionStreamRequest> messages(1 + kMessages);
  messages[0] = session.Attach();
  AddDefinition(&messages[0], 1, "neg", 1);
  for (uint32_t number = 1; number <= kMessages; ++number) {
    AddChainProgram(&messages[number], number, TensorSpec{DType::kFloat32, {16}}, 65536);
    messages[number].add_commands()->mutable_drop()->add_programs(number);
  }
  ExpectServed(client_, 1);
  std::atomic<bool> begun{false}, done{false};
  std::thread attacker([&] {
    const auto on_answer = [&](const v1::SessionStreamResponse&) { begun = true; };
    EXPECT_TRUE(RunStream(rpc, messages, on_answer).ok());
    done = true;
  });
  EXPECT_TRUE(Eventually([&] { return begun.load(); }));
  ExpectServed(client_, 20);
  EXPECT_FALSE(done) << "the other client had to wait for the messages";
  attacker.join();
}

// Each message is short enough for the thread that reads from all connections. Together they keep
// this thread busy without a pause.
TEST_F(FairnessTest, ShortMessagesOfManyStreamsDoNotBlockOtherClients) {
  constexpr int kStreams = 16;
  constexpr int kMessages = 600;
  v1::SessionStreamRequest ops;
  v1::Batch& batch = *ops.add_commands()->mutable_batch();
  for (uint64_t handle = 2; handle < 1002; ++handle) {
    // The op, its output's handle (or the step to it) and its input's, and a drop of its output.
    for (const uint64_t word : {uint64_t{1}, handle == 2 ? handle : 1, handle - 1}) {
      batch.add_words(word);
    }
    batch.add_words(0);
    batch.add_words(0);
  }
  ExpectServed(client_, 1);
  std::atomic<int> ended{0};
  std::vector<std::thread> attackers;
  for (int i = 0; i < kStreams; ++i) {
    attackers.emplace_back([&] {
      RpcClient rpc(daemon_->address());
      rpc.set_deadline_seconds(600);
      RpcSession session(rpc);
      EXPECT_TRUE(session.Ones(1, {16}).ok());
      std::vector<v1::SessionStreamRequest> messages(1 + kMessages, ops);
      messages[0] = session.Attach();
      AddDefinition(&messages[0], 1, "neg", 1);
      EXPECT_TRUE(RunStream(rpc, messages).ok());
      ++ended;
    });
  }
  RpcClient rpc(daemon_->address());
  EXPECT_TRUE(Eventually([&] { return UsedBytes(rpc, "cpu:0") > 0; }));
  ExpectServed(client_, 20);
  EXPECT_LT(ended, kStreams) << "the other client had to wait for all messages";
  for (std::thread& attacker : attackers) attacker.join();
}

// One after another, clients disconnect in the middle of their work without closing their sessions.
TEST_F(FairnessTest, FreesMemoryOfDisconnectedClients) {
  const int64_t before = Used(first_);
  for (int i = 0; i < 10; ++i) {
    RpcClient rpc(daemon_->address());
    RpcSession session(rpc, kShortLeaseSeconds);
    auto stream = rpc.SessionStream();
    v1::SessionStreamRequest message = session.Attach();
    for (uint64_t handle = 1; handle <= 20; ++handle) {
      v1::Op& op = *message.add_commands()->mutable_op();
      op.set_name("ones");
      op.set_output(handle);
      op.set_device("cpu:0");
      (*op.mutable_attrs())["shape"].mutable_ints()->add_values(256 * 1024);
    }
    ASSERT_TRUE(stream->Send(message));
    stream->Cancel();
    ExpectServed(client_, 5);
  }
  EXPECT_TRUE(Eventually([&] { return Used(first_) <= before; }));
}

}  // namespace
}  // namespace tensord::integration
