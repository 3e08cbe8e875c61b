// The life of a call, whatever its method does: admission, revocation, cancellation, deadline,
// drain and shutdown. Each test runs on a main queue, and on a queue whose calls arrive at another.
#include "tensord/server/rpc/server_call.h"

#include <grpcpp/create_channel.h>
#include <grpcpp/generic/generic_stub.h>
#include <gtest/gtest.h>

#include <fstream>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "tensord/common/util/token_file.h"
#include "tensord/server/rpc/bulk/bulk_call.h"
#include "tensord/server/rpc/call_dispatcher.h"
#include "tensord/server/rpc/methods.h"
#include "tensord/server/rpc/unary/unary_call.h"
#include "tensord/server/rpc/unary/unary_methods.h"
#include "tensord/server/rpc/worker_pool.h"
#include "tensord/tests/unit/engine/fake_device.h"
#include "tensord/v1/tensord.pb.h"

namespace tensord::server {
namespace {

constexpr char kAlice[] = "alice-token";
constexpr char kBob[] = "bob-token";
constexpr char kWait[] = "/test.Service/Wait";
constexpr char kWork[] = "/test.Service/Work";
constexpr char kEcho[] = "/test.Service/Echo";
constexpr char kUnary[] = "/test.Service/Unary";

// Events that the handlers of a test record.
struct CallEvents {
  Event admitted;
  Event drained;
  Event done;
  Event destroyed;
  Event work_begun;
  Event work_may_end;
  Event wait_ended;

  Mutex mu;
  std::function<void()> end_wait ABSL_GUARDED_BY(mu);  // the callback of the last wait
  std::weak_ptr<UnaryCallBase> unary ABSL_GUARDED_BY(mu);
  std::string caller ABSL_GUARDED_BY(mu);
};

struct TestContext {
  CallEvents events;
  CallGroup group;
  BulkContext bulk;
};

// Waits (kWait), works (kWork), or sends back what it has been sent (kEcho).
class TestCall final : public BulkCall {
 public:
  TestCall(TestContext* context, std::unique_ptr<GrpcCall> grpc_call, const char* method)
      : BulkCall(&context->bulk, std::move(grpc_call)),
        context_(context),
        events_(&context->events),
        method_(method) {}
  ~TestCall() override { events_->destroyed.Set(); }

 private:
  void OnAdmitted() override {
    {
      MutexLock lock(&events_->mu);
      events_->caller = principal()->name();
    }
    if (!Join(&context_->group)) return Fail(absl::UnavailableError("draining"));
    if (method_ == kWait) {
      BeginWait();
    } else if (method_ == kWork) {
      RunByWorker(
          [events = events_] {
            events->work_begun.Set();
            return events->work_may_end.Wait() ? absl::OkStatus() : absl::InternalError("held");
          },
          [this] { Finish(absl::OkStatus()); });
    } else {
      StartRead(&message_);
    }
    events_->admitted.Set();
  }

  void BeginWait() {
    Wait(
        [this](auto on_end) {
          MutexLock lock(&events_->mu);
          events_->end_wait = on_end;
        },
        [this] {
          events_->wait_ended.Set();
          Finish(absl::OkStatus());
        });
  }

  void OnRead(bool ok) override {
    if (!ok) return Finish(absl::OkStatus());
    StartWrite(message_);
  }
  void OnWritten(bool ok) override {
    if (!ok) return Fail(ClientDisconnected());
    StartRead(&message_);
  }
  void OnDrain() override {
    events_->drained.Set();
    if (method_ == kWait) Fail(absl::UnavailableError("draining"));
  }
  void OnDone() override {
    events_->done.Set();
    BulkCall::OnDone();
  }
  void Fail(const absl::Status& status) override { Finish(status); }

  TestContext* const context_;
  CallEvents* const events_;
  const std::string method_;
  grpc::ByteBuffer message_;
};

std::string ToString(grpc::ByteBuffer buffer) {
  grpc::Slice slice;
  if (!buffer.DumpToSingleSlice(&slice).ok()) return "";
  return {reinterpret_cast<const char*>(slice.begin()), slice.size()};
}

grpc::ByteBuffer ToBuffer(const std::string& bytes) {
  const grpc::Slice slice(bytes);
  return grpc::ByteBuffer(&slice, 1);
}

// A call of any method. Every function blocks until it is done.
class ClientCall {
 public:
  ClientCall(const std::string& address, const std::string& method, const std::string& token,
             std::chrono::milliseconds deadline = std::chrono::seconds(60))
      : stub_(grpc::CreateChannel(address, grpc::InsecureChannelCredentials())) {
    if (!token.empty()) context_.AddMetadata("authorization", "Bearer " + token);
    context_.set_deadline(std::chrono::system_clock::now() + deadline);
    call_ = stub_.PrepareCall(&context_, method, &queue_);
    call_->StartCall(this);
    Next();
  }

  bool Write(const std::string& bytes) {
    call_->Write(ToBuffer(bytes), this);
    return Next();
  }
  bool HalfClose() {
    call_->WritesDone(this);
    return Next();
  }
  std::optional<std::string> Read() {
    grpc::ByteBuffer message;
    call_->Read(&message, this);
    if (!Next()) return std::nullopt;
    return ToString(message);
  }
  grpc::Status Finish() {
    grpc::Status status;
    call_->Finish(&status, this);
    Next();
    return status;
  }
  void Cancel() { context_.TryCancel(); }

 private:
  bool Next() {
    void* tag = nullptr;
    bool ok = false;
    return queue_.Next(&tag, &ok) && ok;
  }

  grpc::CompletionQueue queue_;
  grpc::GenericStub stub_;
  grpc::ClientContext context_;
  std::unique_ptr<grpc::GenericClientAsyncReaderWriter> call_;
};

class ServerCallTest : public testing::TestWithParam<QueueKind> {
 protected:
  ServerCallTest()
      : token_file_(testing::TempDir() + "/tokens" + absl::StrCat(absl::GetCurrentTimeNanos())),
        service_{.engine = nullptr, .sessions = nullptr, .workers = &workers_, .limits = {}},
        context_{.bulk = {.service = &service_}} {}

  void SetUp() override {
    WriteTokens({{"alice", kAlice}, {"bob", kBob}});
    auto authenticator = Authenticator::Make({.token_file = token_file_}, {});
    ASSERT_TRUE(authenticator.ok()) << authenticator.status();
    authenticator_ = *std::move(authenticator);
    for (const char* method : {kWait, kWork, kEcho}) {
      dispatcher_.AddStreaming(method, GetParam(), [this, method](auto grpc_call) {
        return std::make_shared<TestCall>(&context_, std::move(grpc_call), method);
      });
    }
    dispatcher_.AddUnary(kUnary, MakeUnaryFactory<v1::ListOpsRequest, v1::ListOpsResponse>(
                                     &workers_, {.handle = [this](const auto& call) {
                                       MutexLock lock(&context_.events.mu);
                                       context_.events.unary = call;
                                       context_.events.admitted.Set();
                                     }}));
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    dispatcher_.RegisterWith(&builder);
    main_queue_ = std::make_unique<CallQueue>(&builder, authenticator_.get());
    bulk_queue_ = std::make_unique<CallQueue>(&builder, main_queue_.get());
    server_ = builder.BuildAndStart();
    ASSERT_NE(server_, nullptr);
    dispatcher_.AwaitCalls(main_queue_.get(), QueueKind::kMain);
    dispatcher_.AwaitCalls(bulk_queue_.get(), QueueKind::kBulk);
    main_queue_->Start();
    bulk_queue_->Start();
    address_ = absl::StrCat("127.0.0.1:", port);
  }

  void TearDown() override {
    ShutDown();
    EXPECT_FALSE(HasCalls());
    bulk_queue_.reset();
    main_queue_.reset();
    server_.reset();
    authenticator_.reset();
    std::remove(token_file_.c_str());
  }

  void ShutDown() {
    context_.events.work_may_end.Set();
    server_->Shutdown(std::chrono::system_clock::now());
    server_->Wait();
    main_queue_->AwaitEarlierEvents();
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    main_queue_->AwaitNoCalls(deadline);
    bulk_queue_->AwaitNoCalls(deadline);
  }

  void WriteTokens(const std::vector<std::pair<std::string, std::string>>& tokens) {
    std::ofstream file(token_file_);
    for (const auto& [name, token] : tokens) {
      file << *TokenLine(name, HashToken(token), absl::InfiniteFuture()) << "\n";
    }
  }

  ClientCall Call(const std::string& method, const std::string& token = kAlice,
                  std::chrono::milliseconds deadline = std::chrono::seconds(60)) {
    return ClientCall(address_, method, token, deadline);
  }

  // Runs the callback of the last wait, as if the awaited event had happened.
  void EndWait() {
    std::function<void()> end_wait;
    {
      MutexLock lock(&events().mu);
      end_wait = events().end_wait;
    }
    end_wait();
  }

  // Returns the last unary call, which nothing else holds while it waits.
  std::shared_ptr<UnaryCallBase> Unary() {
    MutexLock lock(&events().mu);
    return events().unary.lock();
  }

  bool HasCalls() const { return main_queue_->HasCalls() || bulk_queue_->HasCalls(); }
  CallEvents& events() { return context_.events; }

  const std::string token_file_;
  WorkerPool workers_{1};
  ServiceContext service_;
  TestContext context_;
  CallDispatcher dispatcher_;
  std::unique_ptr<Authenticator> authenticator_;
  std::unique_ptr<CallQueue> main_queue_;
  std::unique_ptr<CallQueue> bulk_queue_;
  std::unique_ptr<grpc::Server> server_;
  std::string address_;
};

INSTANTIATE_TEST_SUITE_P(Queues, ServerCallTest,
                         testing::Values(QueueKind::kMain, QueueKind::kBulk), [](const auto& info) {
                           return info.param == QueueKind::kMain ? "Main" : "Bulk";
                         });

TEST_P(ServerCallTest, EchoesMessagesToTheAdmittedCaller) {
  ClientCall call = Call(kEcho, kBob);
  for (const std::string message : {"one", "two"}) {
    ASSERT_TRUE(call.Write(message));
    EXPECT_EQ(call.Read(), message);
  }
  EXPECT_TRUE(call.HalfClose());
  EXPECT_TRUE(call.Finish().ok());
  EXPECT_TRUE(events().destroyed.Wait());
  MutexLock lock(&events().mu);
  EXPECT_EQ(events().caller, "bob");
}

TEST_P(ServerCallTest, RefusesCallerWithoutValidToken) {
  for (const char* token : {"", "unknown-token"}) {
    EXPECT_EQ(Call(kEcho, token).Finish().error_code(), grpc::StatusCode::UNAUTHENTICATED);
    EXPECT_EQ(Call(kUnary, token).Finish().error_code(), grpc::StatusCode::UNAUTHENTICATED);
    EXPECT_EQ(Call("/test.Service/Unknown", token).Finish().error_code(),
              grpc::StatusCode::UNAUTHENTICATED);
  }
  EXPECT_FALSE(events().admitted.happened());
}

TEST_P(ServerCallTest, UnknownMethodIsUnimplemented) {
  const grpc::Status status = Call("/test.Service/Unknown").Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNIMPLEMENTED);
  EXPECT_EQ(status.error_message(), "the server has no method /test.Service/Unknown");
}

TEST_P(ServerCallTest, RevocationEndsWaitingCall) {
  ClientCall call = Call(kWait);
  ASSERT_TRUE(events().admitted.Wait());
  WriteTokens({{"bob", kBob}});
  authenticator_->Reload();
  const grpc::Status status = call.Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAUTHENTICATED);
  EXPECT_NE(status.error_message().find("revoked"), std::string::npos) << status.error_message();
  EXPECT_TRUE(events().destroyed.Wait());
  EndWait();  // changes nothing
  EXPECT_FALSE(events().wait_ended.happened());
}

TEST_P(ServerCallTest, RevocationEndsUnaryCall) {
  ClientCall call = Call(kUnary);
  ASSERT_TRUE(call.Write(""));
  ASSERT_TRUE(events().admitted.Wait());
  const std::shared_ptr<UnaryCallBase> held = Unary();
  ASSERT_NE(held, nullptr);
  WriteTokens({});
  authenticator_->Reload();
  EXPECT_EQ(call.Finish().error_code(), grpc::StatusCode::UNAUTHENTICATED);
  EXPECT_TRUE(held->over());
  held->Finish(absl::OkStatus());  // changes nothing
}

// The worker uses the call's memory.
TEST_P(ServerCallTest, RevocationWaitsForWorker) {
  ClientCall call = Call(kWork);
  ASSERT_TRUE(events().work_begun.Wait());
  WriteTokens({{"bob", kBob}});
  authenticator_->Reload();
  EXPECT_TRUE(Eventually([&] {
    return Call("/test.Service/Unknown").Finish().error_code() == grpc::StatusCode::UNAUTHENTICATED;
  }));
  EXPECT_FALSE(events().done.happened());
  events().work_may_end.Set();
  EXPECT_EQ(call.Finish().error_code(), grpc::StatusCode::UNAUTHENTICATED);
}

TEST_P(ServerCallTest, CallEndsWhenItsWaitEnds) {
  ClientCall call = Call(kWait);
  ASSERT_TRUE(events().admitted.Wait());
  EndWait();
  EXPECT_TRUE(call.Finish().ok());
  EXPECT_TRUE(events().wait_ended.happened());
}

TEST_P(ServerCallTest, CancellationEndsWaitingCall) {
  ClientCall call = Call(kWait);
  ASSERT_TRUE(events().admitted.Wait());
  call.Cancel();
  EXPECT_EQ(call.Finish().error_code(), grpc::StatusCode::CANCELLED);
  EXPECT_TRUE(events().destroyed.Wait());
  EndWait();  // changes nothing
  EXPECT_FALSE(events().wait_ended.happened());
  EXPECT_TRUE(Eventually([&] { return !HasCalls(); }));
}

TEST_P(ServerCallTest, CancelledCallOutlivesItsWorker) {
  ClientCall call = Call(kWork);
  ASSERT_TRUE(events().work_begun.Wait());
  call.Cancel();
  EXPECT_EQ(call.Finish().error_code(), grpc::StatusCode::CANCELLED);
  EXPECT_TRUE(events().done.Wait());
  EXPECT_FALSE(events().destroyed.happened());
  events().work_may_end.Set();
  EXPECT_TRUE(events().destroyed.Wait());
}

// gRPC may be done with a call before its handler exists.
TEST_P(ServerCallTest, CallThatIsCancelledOnArrivalLeavesNothing) {
  for (int i = 0; i < 200; ++i) {
    ClientCall call = Call(i % 2 == 0 ? kWait : kEcho);
    call.Cancel();
    EXPECT_EQ(call.Finish().error_code(), grpc::StatusCode::CANCELLED);
  }
  EXPECT_TRUE(Eventually([&] { return !HasCalls(); }));
}

TEST_P(ServerCallTest, DeadlineEndsCall) {
  EXPECT_EQ(Call(kWait, kAlice, std::chrono::milliseconds(200)).Finish().error_code(),
            grpc::StatusCode::DEADLINE_EXCEEDED);
  EXPECT_TRUE(Eventually([&] { return !HasCalls(); }));
}

TEST_P(ServerCallTest, DrainReachesOpenCallsAndRefusesLaterOnes) {
  ClientCall echo = Call(kEcho);
  ASSERT_TRUE(echo.Write("before"));
  EXPECT_EQ(echo.Read(), "before");
  context_.group.Drain();
  EXPECT_TRUE(events().drained.Wait());
  EXPECT_EQ(Call(kEcho).Finish().error_message(), "draining");
  // This call doesn't end because of a drain.
  context_.group.AwaitNone(std::chrono::steady_clock::now() + std::chrono::milliseconds(100));
  EXPECT_TRUE(HasCalls());
  ASSERT_TRUE(echo.Write("after"));
  EXPECT_EQ(echo.Read(), "after");
  EXPECT_TRUE(echo.HalfClose());
  EXPECT_TRUE(echo.Finish().ok());
  context_.group.AwaitNone(std::chrono::steady_clock::now() + std::chrono::seconds(60));
  EXPECT_TRUE(Eventually([&] { return !HasCalls(); }));
}

TEST_P(ServerCallTest, DrainEndsCallThatChoosesTo) {
  ClientCall call = Call(kWait);
  ASSERT_TRUE(events().admitted.Wait());
  context_.group.Drain();
  EXPECT_EQ(call.Finish().error_message(), "draining");
}

TEST_P(ServerCallTest, ShutdownEndsOpenCalls) {
  ClientCall waiting = Call(kWait);
  ASSERT_TRUE(events().admitted.Wait());
  ClientCall echo = Call(kEcho);
  ASSERT_TRUE(echo.Write("open"));
  EXPECT_EQ(echo.Read(), "open");
  ClientCall unary = Call(kUnary);
  ASSERT_TRUE(unary.Write(""));
  ShutDown();
  EXPECT_FALSE(waiting.Finish().ok());
  EXPECT_FALSE(echo.Finish().ok());
  EXPECT_FALSE(unary.Finish().ok());
}

}  // namespace
}  // namespace tensord::server
