#include "tensord/server/rpc/unary_call.h"

#include <google/protobuf/empty.pb.h>

#include <list>
#include <optional>

#include "absl/strings/str_cat.h"
#include "tensord/server/rpc/chunk_codec.h"
#include "tensord/server/rpc/status_convert.h"

namespace tensord::server {
namespace {

// A worker decodes and handles a request that is larger than this.
constexpr size_t kDecodeAtOnceBytes = 64 << 10;
// Refused calls whose requests are awaited at once, because they may be public.
constexpr size_t kMaxPublicCalls = 256;

}  // namespace

// The refused calls whose requests are awaited, because they may be public; the oldest first.
class PublicCalls {
 public:
  static PublicCalls& OfProcess() {
    static auto* const calls = new PublicCalls;
    return *calls;
  }

  // Adds a call. If there are too many, the oldest is refused without its request.
  void Add(UnaryCallBase* call) {
    call->queue_->gate()->PublicCallBegan(call->wire_->context);
    std::shared_ptr<UnaryCallBase> oldest;
    {
      MutexLock lock(&mu_);
      call->public_place_ = calls_.insert(calls_.end(), call->weak_from_this());
      if (calls_.size() > kMaxPublicCalls) oldest = calls_.front().lock();
    }
    if (oldest == nullptr) return;
    Remove(oldest.get(), /*served=*/false);
    oldest->Finish(oldest->admitted_);
  }

  // Removes a call, unless that has happened.
  void Remove(UnaryCallBase* call, bool served) {
    {
      MutexLock lock(&mu_);
      if (!call->public_place_.has_value()) return;
      calls_.erase(*std::exchange(call->public_place_, std::nullopt));
    }
    call->queue_->gate()->PublicCallEnded(call->wire_->context, served);
  }

 private:
  Mutex mu_;
  std::list<std::weak_ptr<UnaryCallBase>> calls_ ABSL_GUARDED_BY(mu_);
};

UnaryCallBase::UnaryCallBase(CallQueue* queue, std::unique_ptr<UnaryWire> wire)
    : queue_(queue), wire_(std::move(wire)) {
  queue_->CallBegan();
}

UnaryCallBase::~UnaryCallBase() {
  if (!admitted_.ok()) PublicCalls::OfProcess().Remove(this, /*served=*/false);
  queue_->CallEnded();
}

void UnaryCallBase::Start(WorkerPool* workers) {
  workers_ = workers;
  admitted_ = admission_.Enter(queue_->gate(), &wire_->context,
                               [this](const absl::Status& status) { Finish(status); });
  if (!admitted_.ok() && !MayBePublic()) return Finish(admitted_);
  if (!HasHandler()) {
    return Finish(absl::UnimplementedError(
        absl::StrCat("the server has no method ", wire_->context.method())));
  }
  if (!admitted_.ok()) PublicCalls::OfProcess().Add(this);
  MutexLock lock(&mu_);
  if (!over_) wire_->stream.Read(&request_bytes_, read_.Begin(shared_from_this()));
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
  if (!admitted_.ok()) {
    const bool served = IsPublic();
    PublicCalls::OfProcess().Remove(this, served);
    if (!served) return Finish(admitted_);
  }
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
