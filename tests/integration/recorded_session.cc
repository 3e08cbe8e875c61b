#include "tensord/tests/integration/recorded_session.h"

#include <google/protobuf/message_lite.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/support/client_interceptor.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "tensord/common/util/mutex.h"
#include "tensord/v1/tensord.pb.h"

namespace tensord::integration {
namespace {

using Kind = CallEvent::Kind;

constexpr std::pair<Kind, absl::string_view> kWords[] = {{Kind::kBegin, "begin"},
                                                         {Kind::kSend, "send"},
                                                         {Kind::kHalfClose, "half-close"},
                                                         {Kind::kReceive, "receive"},
                                                         {Kind::kEnd, "end"}};

constexpr absl::string_view kOpenSession = "/tensord.v1.TensorService/OpenSession";
constexpr absl::string_view kSessionStream = "/tensord.v1.TensorService/SessionStream";

bool HasMessage(Kind kind) { return kind == Kind::kSend || kind == Kind::kReceive; }

std::string BytesOf(const grpc::ByteBuffer& buffer) {
  std::vector<grpc::Slice> slices;
  std::string bytes;
  if (!buffer.Dump(&slices).ok()) return bytes;
  for (const grpc::Slice& slice : slices) {
    bytes.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  }
  return bytes;
}

grpc::ByteBuffer BufferOf(const std::string& bytes) {
  const grpc::Slice slice(bytes);
  return grpc::ByteBuffer(&slice, 1);
}

// The events of this process.
class Recording {
 public:
  void Add(CallEvent event) {
    MutexLock lock(&mu_);
    events_.push_back(std::move(event));
  }
  void Begin() {
    MutexLock lock(&mu_);
    active_ = true;
  }
  // Returns 0 if calls aren't recorded now.
  int NewCall() {
    MutexLock lock(&mu_);
    return active_ ? ++calls_ : 0;
  }
  std::vector<CallEvent> End() {
    MutexLock lock(&mu_);
    active_ = false;
    return std::move(events_);
  }

 private:
  Mutex mu_;
  bool active_ ABSL_GUARDED_BY(mu_) = false;
  int calls_ ABSL_GUARDED_BY(mu_) = 0;
  std::vector<CallEvent> events_ ABSL_GUARDED_BY(mu_);
};

Recording& TheRecording() {
  static Recording& recording = *new Recording;
  return recording;
}

// Records one call of a client, if calls are recorded when it begins.
class Recorder : public grpc::experimental::Interceptor {
 public:
  explicit Recorder(grpc::experimental::ClientRpcInfo* info)
      : call_(TheRecording().NewCall()), method_(info->method()) {}

  void Intercept(grpc::experimental::InterceptorBatchMethods* methods) override {
    using Point = grpc::experimental::InterceptionHookPoints;
    const auto at = [&](Point point) { return methods->QueryInterceptionHookPoint(point); };
    if (call_ == 0) {
      methods->Proceed();
      return;
    }
    if (at(Point::PRE_SEND_INITIAL_METADATA)) Add(Kind::kBegin, method_);
    if (at(Point::PRE_SEND_MESSAGE)) {
      Add(Kind::kSend, BytesOf(*methods->GetSerializedSendMessage()));
    }
    if (at(Point::PRE_SEND_CLOSE)) Add(Kind::kHalfClose, "");
    if (at(Point::POST_RECV_MESSAGE)) AddReceived(methods->GetRecvMessage());
    if (at(Point::POST_RECV_STATUS)) {
      Add(Kind::kEnd, absl::StrCat(static_cast<int>(methods->GetRecvStatus()->error_code())));
    }
    methods->Proceed();
  }

 private:
  void Add(Kind kind, std::string bytes) { TheRecording().Add({kind, call_, std::move(bytes)}); }
  // The replay needs no content of the other answers. They describe the machine.
  void AddReceived(const void* message) {
    if (message == nullptr) return;  // the end of the stream
    std::string bytes;
    if (method_ == kSessionStream) {  // the client reads it as bytes, not as Protocol Buffers
      bytes = BytesOf(*static_cast<const grpc::ByteBuffer*>(message));
    } else if (method_ == kOpenSession) {
      bytes = static_cast<const google::protobuf::MessageLite*>(message)->SerializeAsString();
    }
    Add(Kind::kReceive, std::move(bytes));
  }

  const int call_;
  const std::string method_;
};

class RecorderFactory : public grpc::experimental::ClientInterceptorFactoryInterface {
 public:
  grpc::experimental::Interceptor* CreateClientInterceptor(
      grpc::experimental::ClientRpcInfo* info) override {
    return new Recorder(info);
  }
};

// A call with encoded messages. Each function blocks, for at most a minute.
class RawCall {
 public:
  RawCall(grpc::GenericStub* stub, const std::string& method) : method_(method) {
    context_.set_deadline(std::chrono::system_clock::now() + std::chrono::minutes(1));
    call_ = stub->PrepareCall(&context_, method, &queue_);
    call_->StartCall(this);
    Wait();
  }
  ~RawCall() {
    queue_.Shutdown();
    void* tag = nullptr;
    bool ok = false;
    while (queue_.Next(&tag, &ok)) continue;
  }

  const std::string& method() const { return method_; }
  bool Send(const std::string& bytes) {
    call_->Write(BufferOf(bytes), this);
    return Wait();
  }
  bool HalfClose() {
    call_->WritesDone(this);
    return Wait();
  }
  // Returns false at the end of the stream.
  bool Receive(std::string* bytes) {
    grpc::ByteBuffer buffer;
    call_->Read(&buffer, this);
    if (!Wait()) return false;
    *bytes = BytesOf(buffer);
    return true;
  }
  void Cancel() { context_.TryCancel(); }
  grpc::Status End() {
    std::string rest;
    while (Receive(&rest)) continue;
    grpc::Status status;
    call_->Finish(&status, this);
    Wait();
    return status;
  }

 private:
  bool Wait() {
    void* tag = nullptr;
    bool ok = false;
    return queue_.Next(&tag, &ok) && ok;
  }

  const std::string method_;
  grpc::ClientContext context_;
  grpc::CompletionQueue queue_;
  std::unique_ptr<grpc::GenericClientAsyncReaderWriter> call_;
};

// What a client sees of an answer on the stream, as text. Answers have the key "elements N",
// "error of N" or "barrier N".
void AddAnswers(const std::string& bytes, std::map<std::string, std::string>* answers) {
  v1::SessionStreamResponse response;
  ASSERT_TRUE(response.ParseFromString(bytes));
  for (const v1::Elements& elements : response.elements()) {
    (*answers)[absl::StrCat("elements ", elements.request_id())] =
        absl::StrCat("code ", elements.code(), ", ", elements.spec().ShortDebugString(), ", ",
                     absl::BytesToHexString(elements.data()));
  }
  for (const v1::HandleError& error : response.errors()) {
    (*answers)[absl::StrCat("error of ", error.handle())] = absl::StrCat("code ", error.code());
  }
  for (const v1::BarrierDone& barrier : response.barriers()) {
    (*answers)[absl::StrCat("barrier ", barrier.barrier_id())] = "";
  }
}

// Replays the events of one session.
class Player {
 public:
  explicit Player(const std::string& address)
      : stub_(grpc::CreateChannel(address, grpc::InsecureChannelCredentials())) {}

  void Play(const CallEvent& event) {
    if (event.kind == Kind::kBegin) {
      calls_[event.call] = std::make_unique<RawCall>(&stub_, event.bytes);
      return;
    }
    const auto found = calls_.find(event.call);
    ASSERT_NE(found, calls_.end()) << "call " << event.call << " hasn't begun";
    RawCall& call = *found->second;
    switch (event.kind) {
      case Kind::kSend:
        EXPECT_TRUE(call.Send(WithNewSession(event.bytes)));
        break;
      case Kind::kHalfClose:
        EXPECT_TRUE(call.HalfClose());
        break;
      case Kind::kReceive:
        Receive(event, call);
        break;
      default:
        if (event.bytes == absl::StrCat(static_cast<int>(grpc::StatusCode::CANCELLED))) {
          call.Cancel();  // the recorded client did
        }
        EXPECT_EQ(absl::StrCat(static_cast<int>(call.End().error_code())), event.bytes)
            << call.method();
    }
  }

 private:
  std::string WithNewSession(const std::string& bytes) const {
    if (recorded_session_.empty()) return bytes;
    return absl::StrReplaceAll(bytes, {{recorded_session_, session_}});
  }

  void Receive(const CallEvent& event, RawCall& call) {
    if (call.method() == kSessionStream) {
      ReceiveAnswers(event, call);
      return;
    }
    std::string bytes;
    ASSERT_TRUE(call.Receive(&bytes)) << call.method();
    if (call.method() != kOpenSession) return;
    v1::Session recorded;
    v1::Session opened;
    ASSERT_TRUE(recorded.ParseFromString(event.bytes));
    ASSERT_TRUE(opened.ParseFromString(bytes));
    recorded_session_ = recorded.session();
    session_ = opened.session();
    // Lengths inside the recorded messages include that of the id.
    ASSERT_EQ(session_.size(), recorded_session_.size());
  }

  // The server may divide its answers into messages in another way.
  void ReceiveAnswers(const CallEvent& event, RawCall& call) {
    std::map<std::string, std::string> recorded;
    AddAnswers(event.bytes, &recorded);
    for (const auto& [name, answer] : recorded) {
      std::string bytes;
      while (answers_.count(name) == 0 && call.Receive(&bytes)) AddAnswers(bytes, &answers_);
      ASSERT_EQ(answers_.count(name), 1u) << "no answer " << name;
      EXPECT_EQ(answers_[name], answer) << name;
    }
  }

  grpc::GenericStub stub_;
  std::map<int, std::unique_ptr<RawCall>> calls_;
  std::string recorded_session_;
  std::string session_;
  std::map<std::string, std::string> answers_;  // received on the stream
};

absl::StatusOr<CallEvent> ParseEvent(absl::string_view line) {
  const std::vector<std::string> parts = absl::StrSplit(line, ' ');
  for (const auto& [kind, word] : kWords) {
    CallEvent event{kind, 0, parts.size() == 3 ? parts[2] : ""};
    if (parts[0] != word || parts.size() < 2 || !absl::SimpleAtoi(parts[1], &event.call)) continue;
    if (HasMessage(kind)) event.bytes = absl::HexStringToBytes(event.bytes);
    return event;
  }
  return absl::InvalidArgumentError(absl::StrCat("not an event: ", line));
}

}  // namespace

absl::StatusOr<std::vector<CallEvent>> ParseEvents(absl::string_view text) {
  std::vector<CallEvent> events;
  int number = 0;
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    ++number;
    if (line.empty() || absl::StartsWith(line, "#")) continue;
    absl::StatusOr<CallEvent> event = ParseEvent(line);
    if (!event.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat("line ", number, ": ", event.status().message()));
    }
    events.push_back(*std::move(event));
  }
  return events;
}

std::string FormatEvents(const std::vector<CallEvent>& events) {
  std::string text;
  for (const CallEvent& event : events) {
    for (const auto& [kind, word] : kWords) {
      if (kind != event.kind) continue;
      absl::StrAppend(&text, word, " ", event.call);
      const std::string rest = HasMessage(kind) ? absl::BytesToHexString(event.bytes) : event.bytes;
      absl::StrAppend(&text, rest.empty() && !HasMessage(kind) ? "" : " ", rest, "\n");
    }
  }
  return text;
}

void StartRecording() {
  static const bool registered = [] {  // gRPC takes one factory
    grpc::experimental::RegisterGlobalClientInterceptorFactory(new RecorderFactory);
    return true;
  }();
  TheRecording().Begin();
  (void)registered;
}

std::vector<CallEvent> StopRecording() { return TheRecording().End(); }

void ReplaySession(const std::vector<CallEvent>& events, const std::string& address) {
  Player player(address);
  for (const CallEvent& event : events) {
    player.Play(event);
    if (testing::Test::HasFatalFailure()) return;
  }
}

}  // namespace tensord::integration
