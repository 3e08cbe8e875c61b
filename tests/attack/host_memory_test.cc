// Attacks by an authenticated caller that uses as much host memory as it can, other than for the
// elements of tensors. The daemon must refuse the caller's requests at its limit and still serve
// other callers.
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tensord/common/status_details.h"
#include "tensord/tests/attack/memory_growth.h"
#include "tensord/tests/attack/raw_http2.h"
#include "tensord/tests/expect_error.h"
#include "tensord/tests/integration/identity_fixture.h"
#include "tensord/tests/mib.h"

namespace tensord::attack {
namespace {

using integration::RpcClient;
using integration::RpcSession;
using Code = absl::StatusCode;

constexpr char kLimit[] = "--max-host-bytes-per-principal=33554432";
// The caller's limit, the cache of prepared ops, and the memory of messages that are being parsed.
constexpr int64_t kMaxGrowthBytes = (32 + 128 + 96) * kMiB;

// The memory of a message with so few handles isn't charged. So handles use up the whole limit.
constexpr uint64_t kHandlesPerMessage = 40;

class HostMemoryTest : public integration::IdentityFixture {
 protected:
  void SetUp() override {
    StartDaemon({TokenFileFlag({"mallory", "alice"}), "--max-host-bytes=64MiB"});
    if (HasFatalFailure()) return;
    attacker_ = std::make_unique<RpcClient>(daemon_->address(),
                                            integration::RpcCredentials{.token = "mallory-token"});
    session_ = std::make_unique<RpcSession>(*attacker_);
    growth_.emplace(*daemon_, "VmRSS");
  }

  // Expects that another caller is served, and that the daemon's memory has grown by less than
  // kMaxGrowthBytes.
  void TearDown() override {
    RpcClient client(daemon_->address(), {.token = "alice-token"});
    RpcSession alice(client);
    EXPECT_TRUE(alice.Ones(1, {16}).ok());
    EXPECT_TRUE(alice.Add(1, 1, 2).ok());
    EXPECT_TRUE(alice.ReadFloats(2).ok());
    if (growth_.has_value()) growth_->ExpectBelow(kMaxGrowthBytes);
    IdentityFixture::TearDown();
  }

  // Sends messages on a new stream, half-closes it and reads all answers. Returns the status that
  // ends the stream, or else the first error of a command.
  absl::Status Send(const std::vector<v1::SessionStreamRequest>& messages) {
    absl::Status first;
    ended_ = RunStream(*attacker_, messages, [&first](const v1::SessionStreamResponse& response) {
      if (!first.ok() || response.errors().empty()) return;
      const v1::HandleError& error = response.errors(0);
      first = absl::Status(static_cast<absl::StatusCode>(error.code()), error.message());
    });
    return ended_.ok() ? first : ended_;
  }

  // Creates tensors until the limit refuses one. Some fit, because the last stream has ended.
  void ExpectFull() {
    absl::Status status;
    for (uint64_t handle = 2000000; status.ok() && handle < 2002000; ++handle) {
      status = session_->Ones(handle, {16}).status();
    }
    ExpectError(status, Code::kResourceExhausted, {kLimit});
  }

  static void AddPromise(uint64_t handle, v1::SessionStreamRequest* message) {
    v1::Promise& promise = *message->add_commands()->mutable_promise();
    promise.set_handle(handle);
    promise.set_device("cpu:0");
    promise.mutable_spec()->set_dtype(v1::DTYPE_FLOAT32);
    promise.mutable_spec()->add_shape(16);
  }

  std::unique_ptr<RpcClient> attacker_;
  std::unique_ptr<RpcSession> session_;
  absl::Status ended_;  // the status that ended the stream of the last Send()
  std::optional<MemoryGrowth> growth_;
};

// The calls send no message.
TEST_F(HostMemoryTest, BoundsOpenCalls) {
  std::vector<std::unique_ptr<RawHttp2>> connections;
  for (int i = 0; i < 8; ++i) {
    auto& connection = connections.emplace_back(std::make_unique<RawHttp2>(daemon_->address()));
    ASSERT_TRUE(connection->SendPreface());
    for (uint32_t stream = 1; stream < 2 * 600; stream += 2) {
      ASSERT_TRUE(connection->BeginCall(stream, stream % 4 == 1 ? "SharedMemory" : "SessionStream",
                                        {{"authorization", "Bearer mallory-token"}}));
    }
  }
  // The last call is above the limit: 32 MiB hold 2048 calls of 16 KiB.
  EXPECT_EQ(connections.back()->AwaitEnd(2 * 600 - 1), RawHttp2::CallEnd::kError);
  ExpectError(session_->Ones(1, {1}).status(), Code::kResourceExhausted, {kLimit, "end calls"});
  // No connection was closed.
  for (const auto& connection : connections) {
    EXPECT_FALSE(connection->AwaitClosed(std::chrono::milliseconds(0)));
  }
  connections.clear();
  EXPECT_TRUE(integration::Eventually(
      [&] { return attacker_->Call<v1::Session>("OpenSession", v1::OpenSessionRequest()).ok(); }));
}

// Each prepared op takes about a megabyte.
TEST_F(HostMemoryTest, BoundsPreparedOps) {
  for (int64_t size = 1; size <= 400; ++size) {
    std::vector<int64_t> shape(32, 1);
    shape[0] = size;
    ASSERT_TRUE(session_->Ones(1, shape).ok());
    ASSERT_TRUE(
        session_->Run("concat", std::vector<uint64_t>(1024, 1), 2, {{"axis", int64_t{0}}}).ok());
    ASSERT_TRUE(session_->Delete({1, 2}).ok());
  }
}

TEST_F(HostMemoryTest, BoundsPrograms) {
  for (int session = 0; session < 4; ++session) {
    RpcSession attacker(*attacker_);
    v1::SessionStreamRequest first = attacker.Attach();
    integration::AddDefinition(&first, 1, "neg", 1);
    std::vector<v1::SessionStreamRequest> messages = {first};
    for (uint32_t number = 1; number <= 8; ++number) {
      integration::AddChainProgram(&messages.emplace_back(), number, {DType::kFloat32, {}}, 60000);
    }
    v1::ProgramRun& run = *messages.emplace_back().add_commands()->mutable_run();
    run.set_number(8);
    run.add_inputs(1);
    run.add_outputs(2);
    ExpectError(Send(messages), Code::kResourceExhausted, {kLimit});
  }
}

TEST_F(HostMemoryTest, BoundsDefinitions) {
  v1::SessionStreamRequest message = session_->Attach();
  std::vector<v1::SessionStreamRequest> messages;
  for (uint32_t number = 1; number <= 65000; ++number) {
    v1::Definition& definition = integration::AddDefinition(&message, number, "neg", 1);
    (*definition.mutable_attrs())["text"].set_s(std::string(400, 'x'));
    if (number % 1000 != 0) continue;
    messages.push_back(std::move(message));
    message = v1::SessionStreamRequest();
  }
  ExpectError(Send(messages), Code::kResourceExhausted, {kLimit});
}

TEST_F(HostMemoryTest, BoundsHandles) {
  std::vector<v1::SessionStreamRequest> messages = {session_->Attach()};
  for (uint64_t handle = 1; handle <= 500000; ++handle) {
    if (handle % kHandlesPerMessage == 1) messages.emplace_back();
    AddPromise(handle, &messages.back());
  }
  ExpectError(Send(messages), Code::kResourceExhausted, {kLimit});
  // At the limit, commands are refused, but their stream doesn't end.
  EXPECT_TRUE(ended_.ok()) << ended_;
  // After the caller has deleted tensors, its requests are served again.
  ExpectFull();
  std::vector<uint64_t> deleted(1000);
  for (size_t i = 0; i < deleted.size(); ++i) deleted[i] = i + 1;
  ASSERT_TRUE(session_->Delete(deleted).ok());
  ASSERT_TRUE(session_->Ones(1000000, {16}).ok());
  EXPECT_TRUE(session_->ReadFloats(1000000).ok());
}

TEST_F(HostMemoryTest, BoundsTextsOfErrors) {
  constexpr uint64_t kPerMessage = 100;
  for (uint64_t first = 1; first <= 12000; first += kPerMessage) {
    v1::SessionStreamRequest message = session_->Attach();
    for (uint64_t handle = first; handle < first + kPerMessage; ++handle) {
      AddPromise(handle, &message);
      v1::FailPromise& fail = *message.add_commands()->mutable_fail();
      fail.set_handle(handle);
      fail.set_code(static_cast<int>(Code::kDataLoss));
      fail.set_message(std::string(4000, 'x'));
    }
    Send({message}).IgnoreError();
    ASSERT_TRUE(ended_.ok()) << ended_;
  }
  // Without the texts, the handles take a tenth of the limit.
  ExpectFull();
}

// Ops with many inputs wait for a promised tensor that is never uploaded.
TEST_F(HostMemoryTest, BoundsOpsInFlight) {
  std::vector<v1::SessionStreamRequest> messages = {session_->Attach()};
  AddPromise(1, &messages.back());
  for (uint64_t handle = 2; handle <= 2000; ++handle) {
    if (handle % 100 == 2) messages.emplace_back();
    v1::Op& op = *messages.back().add_commands()->mutable_op();
    op.set_name("concat");
    op.set_output(handle);
    for (int i = 0; i < 1024; ++i) op.add_inputs(1);
    (*op.mutable_attrs())["axis"].set_i(0);
    messages.back().add_commands()->mutable_drop()->add_handles(handle);
  }
  ExpectError(Send(messages), Code::kResourceExhausted, {kLimit});
}

// Each barrier waits for all promised tensors.
TEST_F(HostMemoryTest, BoundsBarriers) {
  std::vector<v1::SessionStreamRequest> messages = {session_->Attach()};
  for (uint64_t handle = 1; handle <= 10000; ++handle) AddPromise(handle, &messages.back());
  messages.emplace_back();
  for (int i = 0; i < 1000; ++i) messages.back().add_commands()->mutable_barrier();
  ExpectError(Send(messages), Code::kResourceExhausted, {kLimit});
}

TEST_F(HostMemoryTest, BoundsSessions) {
  std::vector<std::unique_ptr<RpcSession>> sessions;
  do {
    sessions.push_back(std::make_unique<RpcSession>(*attacker_));
  } while (!sessions.back()->id().empty());
  EXPECT_LT(sessions.size(), 1024u);
  v1::OpenSessionRequest request;
  ExpectError(attacker_->Call<v1::Session>("OpenSession", request), Code::kResourceExhausted,
              {kLimit, "holds"});
}

// The calls wait for a promised tensor that is never uploaded, until their deadlines pass.
TEST_F(HostMemoryTest, BoundsCallsThatWereCancelled) {
  std::vector<v1::SessionStreamRequest> messages = {session_->Attach()};
  for (uint64_t handle = 1; handle <= 200000; ++handle) {
    if (handle % kHandlesPerMessage == 1) messages.emplace_back();
    AddPromise(handle, &messages.back());
  }
  ExpectError(Send(messages), Code::kResourceExhausted, {kLimit});
  // Memory for some waiting calls was charged when the session opened. Further calls are refused.
  attacker_->set_deadline_seconds(0.02);
  absl::Status status;
  for (int i = 0; i < 1000 && !absl::IsResourceExhausted(status); ++i) {
    status = session_->Get(1, 1).status();
    ASSERT_FALSE(status.ok());
  }
  ExpectError(status, Code::kResourceExhausted, {kLimit});
  attacker_->set_deadline_seconds(60);
  // TearDown() expects that other callers are served.
}

class ConnectionMemoryTest : public integration::IdentityFixture {
 protected:
  void SetUp() override {
    StartDaemon({TokenFileFlag({"mallory", "alice"}), "--max-host-bytes-per-principal=8MiB"});
  }

  // Creates tensors until the limit refuses one.
  static void ExpectFull(RpcSession& session) {
    absl::Status status;
    for (uint64_t handle = 1; handle <= 100'000 && status.ok(); ++handle) {
      status = session.Ones(handle, {1}).status();
    }
    ExpectError(status, Code::kResourceExhausted, {"--max-host-bytes-per-principal"});
  }

  RawHttp2& Connect() {
    connections_.push_back(std::make_unique<RawHttp2>(daemon_->address()));
    EXPECT_TRUE(connections_.back()->SendPreface());
    return *connections_.back();
  }

  const Headers credentials_ = {{"authorization", "Bearer mallory-token"}};
  std::vector<std::unique_ptr<RawHttp2>> connections_;
};

// Each connection has made one call. 8 MiB hold 128 connections.
TEST_F(ConnectionMemoryTest, BoundsIdleConnections) {
  RpcClient client(daemon_->address(), {.token = "mallory-token"});
  RpcSession session(client, /*lease_seconds=*/600);
  int served = 0;
  while (served < 400 && Connect().Call(1, "ListDevices", credentials_)) ++served;
  EXPECT_GE(served, 100);
  EXPECT_LE(served, 128);
  // Tensors take the rest. Otherwise a call that ends could make room for a connection.
  ExpectFull(session);
  RpcClient another(daemon_->address(), {.token = "mallory-token"});
  ExpectError(ListDevices(another), Code::kResourceExhausted,
              {"--max-host-bytes-per-principal=8388608", "connections"});
  const absl::Status alice = Ask("alice-token");
  EXPECT_TRUE(alice.ok()) << alice;

  // The connection of refused calls stays open, and is admitted when there is room.
  RawHttp2& refused = *connections_.back();
  uint32_t stream = 1;
  for (int i = 0; i < 200; ++i)
    EXPECT_FALSE(refused.Call(stream += 2, "ListDevices", credentials_));
  connections_.erase(connections_.begin(), connections_.begin() + 50);
  EXPECT_TRUE(integration::Eventually(
      [&] { return refused.Call(stream += 2, "ListDevices", credentials_); }));
  EXPECT_TRUE(connections_.front()->Call(3, "ListDevices", credentials_));
}

// A caller that holds as much memory as it may can connect again, and free memory.
TEST_F(ConnectionMemoryTest, ServesAFewConnectionsPastTheLimit) {
  RpcClient client(daemon_->address(), {.token = "mallory-token"});
  RpcSession session(client);
  ExpectFull(session);
  RpcClient another(daemon_->address(), {.token = "mallory-token"});
  v1::DeleteTensorsRequest request;
  request.set_session(session.id());
  request.add_handles(1);
  const auto deleted = another.Call<v1::DeleteTensorsResponse>("DeleteTensors", request);
  EXPECT_TRUE(deleted.ok()) << deleted.status();
}

class ReadBufferTest : public integration::IdentityFixture {
 protected:
  void SetUp() override {
    StartDaemon({"--max-request-bytes-per-principal=32MiB", TokenFileFlag({"mallory", "alice"})});
  }
  void TearDown() override {
    const absl::Status alice = Ask("alice-token");
    EXPECT_TRUE(alice.ok()) << alice;
    IdentityFixture::TearDown();
  }
};

// Each connection has sent large messages. gRPC sizes its read buffers by what it has received, and
// keeps them while the connections are idle.
TEST_F(ReadBufferTest, OfAFewIdleConnectionsAreBoundedTogether) {
  constexpr int kConnections = 120;
  const std::string bytes(8 << 20, 'x');
  const TensorSpec spec{DType::kUInt8, {static_cast<int64_t>(bytes.size())}};
  std::vector<std::unique_ptr<RpcClient>> clients;
  const MemoryGrowth growth(*daemon_, "VmRSS");
  for (int i = 0; i < kConnections; ++i) {
    RpcClient& client = *clients.emplace_back(std::make_unique<RpcClient>(
        daemon_->address(), integration::RpcCredentials{.token = "mallory-token"}));
    RpcSession session(client, /*lease_seconds=*/600);
    for (int upload = 0; upload < 3; ++upload) {
      const auto created = session.Create(1, spec, bytes);
      ASSERT_TRUE(created.ok()) << created.status();
      ASSERT_TRUE(session.Delete({1}).ok());
    }
    ASSERT_TRUE(session.Close().ok());
  }
  growth.ExpectBelow(96 << 20);
}

// Each connection has sent one request of 60 kB. It is charged 64 KiB of host memory.
TEST_F(ReadBufferTest, OfManyIdleConnectionsAreCharged) {
  constexpr int64_t kConnections = 800;
  constexpr size_t kFrameBytes = 16000;
  RpcClient client(daemon_->address(), {.token = "mallory-token"});
  RpcSession session(client, /*lease_seconds=*/600);
  v1::CreateTensorRequest request;
  request.set_session(session.id());
  request.set_device("cpu:0");
  request.mutable_spec()->set_dtype(v1::DTYPE_UINT8);
  request.mutable_spec()->add_shape(60000);
  request.set_data(std::string(60000, 'x'));
  std::vector<std::unique_ptr<RawHttp2>> connections;
  const MemoryGrowth growth(*daemon_, "VmRSS");
  for (int i = 0; i < kConnections; ++i) {
    RawHttp2& connection =
        *connections.emplace_back(std::make_unique<RawHttp2>(daemon_->address()));
    ASSERT_TRUE(connection.SendPreface());
    ASSERT_TRUE(
        connection.BeginCall(1, "CreateTensor", {{"authorization", "Bearer mallory-token"}}));
    request.set_handle(1 + i);
    const std::string message = GrpcMessage(request.SerializeAsString());
    for (size_t sent = 0; sent < message.size(); sent += kFrameBytes) {
      const uint8_t flags = sent + kFrameBytes < message.size() ? 0 : kEndStream;
      ASSERT_TRUE(connection.SendFrame(kData, flags, 1, message.substr(sent, kFrameBytes)));
    }
    ASSERT_EQ(connection.AwaitEnd(1), RawHttp2::CallEnd::kResponse) << i;
    ASSERT_TRUE(session.Delete({request.handle()}).ok());
  }
  growth.ExpectBelow(kConnections * (64 << 10) + (8 << 20));
}

}  // namespace
}  // namespace tensord::attack
