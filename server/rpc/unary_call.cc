#include "tensord/server/rpc/unary_call.h"

#include <google/protobuf/empty.pb.h>

#include <atomic>

#include "absl/strings/str_cat.h"
#include "tensord/server/rpc/chunk_codec.h"
#include "tensord/server/rpc/status_convert.h"

namespace tensord::server {
namespace {

// A worker decodes and handles a request that is larger than this.
constexpr size_t kDecodeAtOnceBytes = 64 << 10;
// Calls of refused callers whose requests are awaited, because they may be public.
constexpr int kMaxPublicCalls = 256;
std::atomic<int> public_calls = 0;

}  // namespace

UnaryCallBase::UnaryCallBase(CallQueue* queue, std::unique_ptr<UnaryWire> wire)
    : queue_(queue), wire_(std::move(wire)) {
  queue_->CallBegan();
}

UnaryCallBase::~UnaryCallBase() {
  LeavePublicPlace(/*served=*/false);
  queue_->CallEnded();
}

bool UnaryCallBase::TakePublicPlace() {
  has_public_place_ = true;
  queue_->gate()->PublicCallBegan(wire_->context);
  return ++public_calls <= kMaxPublicCalls;
}

void UnaryCallBase::LeavePublicPlace(bool served) {
  if (!std::exchange(has_public_place_, false)) return;
  --public_calls;
  queue_->gate()->PublicCallEnded(wire_->context, served);
}

void UnaryCallBase::Start(WorkerPool* workers) {
  workers_ = workers;
  admitted_ = admission_.Enter(queue_->gate(), &wire_->context,
                               [this](const absl::Status& status) { Finish(status); });
  if (!admitted_.ok() && !(MayBePublic() && TakePublicPlace())) {
    Finish(admitted_);
  } else if (!HasHandler()) {
    Finish(absl::UnimplementedError(
        absl::StrCat("the server has no method ", wire_->context.method())));
  } else {
    wire_->stream.Read(&request_bytes_, read_.Begin(shared_from_this()));
  }
}

void UnaryCallBase::OnRead(bool ok) {
  if (!ok) {
    Finish(absl::InvalidArgumentError("the call has no request, or one that is too large"));
    return;
  }
  admission_.RequestReceived(request_bytes_.Length());
  if (request_bytes_.Length() <= kDecodeAtOnceBytes) {
    Decode();
  } else {
    workers_->Post([self = shared_from_this()] { self->Decode(); });
  }
}

void UnaryCallBase::Decode() {
  const absl::Status decoded = DecodeMessage(&request_bytes_, &request_message());
  request_bytes_.Clear();
  if (!decoded.ok()) return Finish(decoded);
  const bool served = IsPublic();
  LeavePublicPlace(served);
  if (!admitted_.ok() && !served) return Finish(admitted_);
  Handle();
}

void UnaryCallBase::OnDone(bool /*ok*/) {
  admission_.Leave();
  if (wire_->context.IsCancelled()) queue_->gate()->CallCancelled(wire_->context);
  // The server must end the call even if the client has cancelled it.
  Finish(absl::CancelledError("the client has gone"));
  SessionUse session;
  MutexLock lock(&mu_);
  session = std::move(session_);
}

void UnaryCallBase::Finish(const absl::Status& status) {
  const grpc::Status converted = ToGrpc(status);
  MutexLock lock(&mu_);
  if (over_) return;
  over_ = true;
  // The lock is held: once gRPC has reported that the call is done, no operation may begin.
  void* const tag = finish_.Begin(shared_from_this());
  if (status.ok()) {
    wire_->stream.WriteAndFinish(EncodeMessage(response_message()), grpc::WriteOptions(), converted,
                                 tag);
  } else {
    wire_->stream.Finish(converted, tag);
  }
}

bool UnaryCallBase::over() const {
  MutexLock lock(&mu_);
  return over_;
}

void UnaryCallBase::Use(SessionUse session) {
  MutexLock lock(&mu_);
  session_ = std::move(session);
}

// Waits for one call of any unary method, and dispatches it.
class UnaryDispatcher::Arrival final : public std::enable_shared_from_this<Arrival> {
 public:
  Arrival(UnaryDispatcher* dispatcher, CallQueue* queue)
      : dispatcher_(dispatcher), queue_(queue), wire_(std::make_unique<UnaryWire>()) {}

  void Await() {
    wire_->context.AsyncNotifyWhenDone(wire_->done.Begin(nullptr));
    dispatcher_->service_.RequestCall(&wire_->context, &wire_->stream, queue_->get(), queue_->get(),
                                      called_.Begin(shared_from_this()));
  }

 private:
  friend class CallEvent<Arrival>;

  void OnCalled(bool ok) {
    if (!ok) return;  // the server shuts down; there is no call
    dispatcher_->Await(queue_);
    dispatcher_->Dispatch(queue_, std::move(wire_));
  }
  void AfterEvent() {}

  UnaryDispatcher* const dispatcher_;
  CallQueue* const queue_;
  std::unique_ptr<UnaryWire> wire_;
  CallEvent<Arrival> called_{&Arrival::OnCalled};
};

UnaryDispatcher::UnaryDispatcher(WorkerPool* workers)
    : workers_(workers),
      make_unknown_(Maker<google::protobuf::Empty, google::protobuf::Empty>({.handle = nullptr})) {}

void UnaryDispatcher::Await(CallQueue* queue) { std::make_shared<Arrival>(this, queue)->Await(); }

void UnaryDispatcher::Dispatch(CallQueue* queue, std::unique_ptr<UnaryWire> wire) {
  CallEvent<UnaryCallBase>& done = wire->done;
  const auto method = methods_.find(wire->context.method());
  const Make& make = method != methods_.end() ? method->second : make_unknown_;
  const std::shared_ptr<UnaryCallBase> call = make(queue, std::move(wire));
  done.Begin(call);
  call->Start(workers_);
}

}  // namespace tensord::server
