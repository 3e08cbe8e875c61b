// Connection admission makes no call of a legitimate client fail, however busy the machine is.
#include <atomic>
#include <cstdlib>
#include <thread>

#include "tensord/tests/integration/identity_fixture.h"

namespace tensord::integration {
namespace {

constexpr int kClients = 4;
constexpr int kBusyLoops = 8;

// Keeps processors busy while it exists.
class Load {
 public:
  Load() {
    for (int i = 0; i < kBusyLoops; ++i) {
      threads_.emplace_back([this] {
        while (!stopping_.load(std::memory_order_relaxed)) {
        }
      });
    }
  }
  ~Load() {
    stopping_ = true;
    for (std::thread& thread : threads_) thread.join();
  }

 private:
  std::atomic<bool> stopping_ = false;
  std::vector<std::thread> threads_;
};

// The sizes of the tensors that clients make, in bytes. The largest just fits a message.
constexpr int64_t kSizes[] = {1,         100,       4096,    16 << 10, 64 << 10, 96 << 10,
                              128 << 10, 200 << 10, 1 << 20, 64 << 10, 3 << 20,  15 << 20};

constexpr int64_t kLongUploadBytes = 16 << 20;

// Uploads kLongUploadBytes, beginning with `message`, until the server ends the call.
absl::Status UploadAll(RpcClient& client, v1::WriteRequest message) {
  constexpr int64_t kChunkBytes = 64 << 10;
  const auto write = client.Write();
  for (int64_t offset = 0; offset < kLongUploadBytes; offset += kChunkBytes) {
    message.set_offset(offset);
    message.set_data(std::string(kChunkBytes, 'x'));
    if (!write->Send(message)) break;
    message.Clear();
  }
  return write->Finish().status();
}

class AdmissionTest : public DaemonFixture {
 protected:
  // Makes a tensor of `bytes` bytes by the first call of a new connection. If `kind` is 0, calls
  // CreateTensor. If it is 1, calls RunOp. Otherwise calls Write.
  absl::Status MakeByNewConnection(int kind, uint64_t handle, int64_t bytes) {
    RpcClient client(daemon_->address());
    const TensorSpec spec = {DType::kUInt8, {bytes}};
    const std::string data(static_cast<size_t>(bytes), static_cast<char>(handle));
    switch (kind) {
      case 0: {
        v1::CreateTensorRequest request;
        request.set_session(session_->id());
        request.set_handle(handle);
        *request.mutable_spec() = ToProto(spec);
        request.set_device("cpu:0");
        request.set_data(data);
        return client.Call<v1::Tensor>("CreateTensor", request).status();
      }
      case 1: {
        v1::RunOpRequest request;
        request.set_session(session_->id());
        v1::Op& op = *request.mutable_op();
        op.set_name("constant");
        op.set_output(handle);
        op.set_device("cpu:0");
        (*op.mutable_attrs())["shape"] = ToProto(AttrValue(std::vector<int64_t>{bytes}));
        (*op.mutable_attrs())["dtype"] = ToProto(AttrValue(DType::kUInt8));
        (*op.mutable_attrs())["data"].set_data(data);
        return client.Call<v1::Tensor>("RunOp", request).status();
      }
      default:
        return Write(client, handle, spec, data);
    }
  }

  absl::Status Write(RpcClient& client, uint64_t handle, const TensorSpec& spec,
                     const std::string& data) {
    constexpr size_t kChunkBytes = 512 << 10;
    const auto call = client.Write();
    v1::WriteRequest message = session_->FirstWrite(handle, spec);
    for (size_t offset = 0; offset < data.size(); offset += kChunkBytes) {
      message.set_offset(static_cast<int64_t>(offset));
      message.set_data(data.substr(offset, kChunkBytes));
      if (!call->Send(message)) break;
      message.Clear();
    }
    return call->Finish().status();
  }

  // Expects that the server holds the whole tensor.
  void ExpectWritten(uint64_t handle, int64_t bytes) {
    const auto read = session_->Read(handle);
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_EQ(read->data(), std::string(static_cast<size_t>(bytes), static_cast<char>(handle)));
  }
};

class FewConnectionsTest : public DaemonFixture {
 protected:
  // The fixture's own client has one connection.
  FewConnectionsTest() : DaemonFixture({"--max-connections-per-principal=3"}) {}
};

class FewConnectionsOfAnAddressTest : public DaemonFixture {
 protected:
  FewConnectionsOfAnAddressTest() : DaemonFixture({"--max-connections-per-address=3"}) {}
};

class AdmissionTokenTest : public IdentityFixture {
 protected:
  void SetUp() override { StartDaemon({"--token-file=" + folder_.Write("tokens", "")}); }
};

TEST_F(AdmissionTest, ServesFirstCallsOfAllSizesOnABusyMachine) {
  const int calls = std::getenv("TENSORD_TEST_LONG") != nullptr ? 10000 : 500;
  const Load load;
  std::atomic<int> next = 0;
  std::vector<std::thread> clients;
  for (int i = 0; i < kClients; ++i) {
    clients.emplace_back([&] {
      for (int call = next++; call < calls; call = next++) {
        const uint64_t handle = static_cast<uint64_t>(call) + 1;
        const int64_t bytes = kSizes[static_cast<size_t>(call) % std::size(kSizes)];
        const int kind = call / static_cast<int>(std::size(kSizes)) % 3;
        const absl::Status made = MakeByNewConnection(kind, handle, bytes);
        EXPECT_TRUE(made.ok()) << "call " << call << ", kind " << kind << ", " << bytes
                               << " bytes: " << made;
        if (made.ok()) ExpectWritten(handle, bytes);
        EXPECT_TRUE(session_->Delete({handle}).ok());
      }
    });
  }
  for (std::thread& client : clients) client.join();
}

TEST_F(FewConnectionsTest, RefusesCallsOfAConnectionTooMany) {
  {
    RpcClient second(daemon_->address());
    RpcClient third(daemon_->address());
    EXPECT_TRUE(ListDevices(second).ok());
    EXPECT_TRUE(ListDevices(third).ok());
    RpcClient fourth(daemon_->address());
    const auto refused = ListDevices(fourth);
    ExpectError(refused, absl::StatusCode::kResourceExhausted);
    EXPECT_THAT(std::string(refused.status().message()),
                testing::HasSubstr("max-connections-per-principal"));
  }
  EXPECT_TRUE(Eventually([this] {
    RpcClient another(daemon_->address());
    return ListDevices(another).ok();
  }));
}

TEST_F(FewConnectionsOfAnAddressTest, ClosesAConnectionTooMany) {
  {
    RpcClient second(daemon_->address());
    RpcClient third(daemon_->address());
    EXPECT_TRUE(ListDevices(second).ok());
    EXPECT_TRUE(ListDevices(third).ok());
    RpcClient fourth(daemon_->address());
    ExpectError(ListDevices(fourth), absl::StatusCode::kUnavailable);
  }
  EXPECT_TRUE(Eventually([this] {
    RpcClient another(daemon_->address());
    return ListDevices(another).ok();
  }));
}

// gRPC receives large messages of several calls of one connection at once. The server must not take
// them for one message that is too large.
TEST_F(AdmissionTest, ServesLargeMessagesSideBySideOnABusyMachine) {
  constexpr int kCallers = 8;
  constexpr int kCallsPerCaller = 3;
  constexpr int64_t kBytes = 16 << 20;
  const Load load;
  RpcClient client(daemon_->address());
  std::vector<std::thread> callers;
  for (uint64_t handle = 1; handle <= kCallers; ++handle) {
    callers.emplace_back([&, handle] {
      v1::CreateTensorRequest request;
      request.set_session(session_->id());
      request.set_handle(handle);
      *request.mutable_spec() = ToProto(TensorSpec{DType::kUInt8, {kBytes}});
      request.set_device("cpu:0");
      request.set_data(std::string(kBytes, static_cast<char>(handle)));
      for (int i = 0; i < kCallsPerCaller; ++i) {
        const auto made = client.Call<v1::Tensor>("CreateTensor", request);
        EXPECT_TRUE(made.ok()) << made.status();
        EXPECT_TRUE(session_->Delete({handle}).ok());
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
}

// Many calls begin at once on a connection that the server hasn't admitted yet.
TEST_F(AdmissionTest, ServesManyFirstCallsOfOneConnectionAtOnce) {
  constexpr int kCalls = 64;
  constexpr int64_t kBytes = 1 << 20;
  const Load load;
  RpcClient client(daemon_->address());
  std::vector<std::thread> calls;
  for (uint64_t handle = 1; handle <= kCalls; ++handle) {
    calls.emplace_back([&, handle] {
      v1::CreateTensorRequest request;
      request.set_session(session_->id());
      request.set_handle(handle);
      *request.mutable_spec() = ToProto(TensorSpec{DType::kUInt8, {kBytes}});
      request.set_device("cpu:0");
      request.set_data(std::string(kBytes, static_cast<char>(handle)));
      const auto made = client.Call<v1::Tensor>("CreateTensor", request);
      EXPECT_TRUE(made.ok()) << made.status();
    });
  }
  for (std::thread& call : calls) call.join();
  for (uint64_t handle = 1; handle <= kCalls; ++handle) ExpectWritten(handle, kBytes);
}

// The calls name a session that doesn't exist. The connection then still serves the next call.
TEST_F(AdmissionTest, ServesAConnectionWhoseLargeCallsFail) {
  RpcClient client(daemon_->address());
  v1::CreateTensorRequest request;
  request.set_session("no such session");
  request.set_handle(1);
  *request.mutable_spec() = ToProto(TensorSpec{DType::kUInt8, {8 << 20}});
  request.set_data(std::string(8 << 20, 'x'));
  for (int i = 0; i < 10; ++i) {
    ExpectError(client.Call<v1::Tensor>("CreateTensor", request), absl::StatusCode::kNotFound);
  }
  EXPECT_TRUE(ListDevices(client).ok());
}

TEST_F(AdmissionTest, RefusesATooLargeFirstMessageWithItsReason) {
  RpcClient client(daemon_->address());
  v1::CreateTensorRequest request;
  request.set_session(session_->id());
  request.set_handle(1);
  *request.mutable_spec() = ToProto(TensorSpec{DType::kUInt8, {40 << 20}});
  request.set_data(std::string(40 << 20, 'x'));
  ExpectError(client.Call<v1::Tensor>("CreateTensor", request),
              absl::StatusCode::kResourceExhausted);
}

TEST_F(AdmissionTest, ServesAConnectionWhoseCallsAreCancelled) {
  RpcClient client(daemon_->address());
  v1::CreateTensorRequest request;
  request.set_session("no such session");
  request.set_data(std::string(15 << 20, 'x'));
  for (int i = 0; i < 20; ++i) {
    client.set_deadline_seconds(0.001 * (i + 1));
    EXPECT_FALSE(client.Call<v1::Tensor>("CreateTensor", request).ok());
  }
  client.set_deadline_seconds(60);
  EXPECT_TRUE(ListDevices(client).ok());
}

// The server ends each upload while the client is still sending data.
TEST_F(AdmissionTest, ServesAConnectionWhoseUploadsFailMidway) {
  RpcClient client(daemon_->address());
  for (int i = 0; i < 20; ++i) {
    v1::WriteRequest first = session_->FirstWrite(1, {DType::kUInt8, {kLongUploadBytes}});
    first.mutable_spec()->set_session("no such session");
    ExpectError(UploadAll(client, first), absl::StatusCode::kNotFound);
  }
  EXPECT_TRUE(ListDevices(client).ok());
}

TEST_F(AdmissionTest, ServesAConnectionWhoseStreamsFail) {
  RpcClient client(daemon_->address());
  v1::WriteRequest first = session_->FirstWrite(1, {DType::kUInt8, {1 << 20}});
  first.mutable_spec()->set_session("no such session");
  first.set_data(std::string(512 << 10, 'x'));
  v1::ReadRequest read;
  read.set_session(std::string(256 << 10, 'x'));
  v1::SessionStreamRequest attach;
  attach.mutable_attach()->set_session(std::string(256 << 10, 'x'));
  for (int i = 0; i < 10; ++i) {
    const auto write = client.Write();
    write->Send(first);
    ExpectError(write->Finish(), absl::StatusCode::kNotFound);
    const auto reading = client.Read(read);
    EXPECT_FALSE(reading->Next().has_value());
    ExpectError(reading->Finish(), absl::StatusCode::kResourceExhausted);  // it is too large
    const auto stream = client.SessionStream();
    stream->Send(attach);
    EXPECT_FALSE(stream->Next().has_value());
    ExpectError(stream->Finish(), absl::StatusCode::kNotFound);
  }
  EXPECT_TRUE(ListDevices(client).ok());
}

// The server doesn't know the client's token. The client keeps sending large requests.
TEST_F(AdmissionTokenTest, AnswersAConnectionWhoseCallsAreRefused) {
  RpcClient client(daemon_->address(), {.token = "an unknown token"});
  v1::CreateTensorRequest request;
  request.set_data(std::string(1 << 20, 'x'));
  for (int i = 0; i < 40; ++i) {
    ExpectError(client.Call<v1::Tensor>("CreateTensor", request),
                absl::StatusCode::kUnauthenticated);
  }
}

// A refused client may send more bytes than the server reads from all unadmitted connections. The
// server then closes the client's connection. Each call ends with one of two errors; none hangs.
TEST_F(AdmissionTokenTest, EndsUploadsThatAreRefused) {
  RpcClient client(daemon_->address(), {.token = "an unknown token"});
  int refused = 0;
  for (int i = 0; i < 21; ++i) {
    const absl::Status status = UploadAll(client, v1::WriteRequest());
    EXPECT_TRUE(absl::IsUnauthenticated(status) || absl::IsUnavailable(status)) << status;
    refused += absl::IsUnauthenticated(status) ? 1 : 0;
  }
  EXPECT_GT(refused, 0);
}

// The token is revoked after the server has admitted a call of the connection.
TEST_F(AdmissionTokenTest, AnswersACallerWhoseTokenWasRevoked) {
  constexpr char kToken[] = "alice-token";
  folder_.Write("tokens", Line("alice", kToken));
  ASSERT_TRUE(Eventually([&] { return Ask(kToken).ok(); }));
  RpcClient alice(daemon_->address(), {.token = kToken});
  ASSERT_TRUE(ListDevices(alice).ok());
  folder_.Write("tokens", "");
  ASSERT_TRUE(Eventually([&] { return absl::IsUnauthenticated(Ask(kToken)); }));
  v1::CreateTensorRequest request;
  request.set_data(std::string(1 << 20, 'x'));
  for (int i = 0; i < 40; ++i) {
    ExpectError(alice.Call<v1::Tensor>("CreateTensor", request),
                absl::StatusCode::kUnauthenticated);
  }
}

TEST_F(AdmissionTokenTest, AnswersAProbeThatKeepsItsConnection) {
  RpcClient probe(daemon_->address());
  for (int i = 0; i < 400; ++i) {
    const auto health = probe.Health("");
    ASSERT_TRUE(health.ok()) << "probe " << i << ": " << health.status();
  }
}

}  // namespace
}  // namespace tensord::integration
