#include "tensord/server/rpc/unary_call.h"

#include <google/protobuf/empty.pb.h>

#include <list>
#include <optional>

#include "absl/strings/str_cat.h"
#include "tensord/server/rpc/chunk_codec.h"
#include "tensord/server/rpc/status_convert.h"

namespace tensord::server {
namespace {

// The queue's thread decodes and handles requests up to this size. A worker does it for larger
// ones.
constexpr size_t kMaxInlineRequestBytes = 64 << 10;
// The most refused calls whose requests the server waits for at once, because they may be public.
constexpr size_t kMaxPublicCalls = 256;

}  // namespace

// The refused calls whose requests the server waits for, because a request may be public. The
// oldest comes first. Thread-safe.
class PublicCalls {
 public:
  static PublicCalls& OfProcess() {
    static auto* const calls = new PublicCalls;
    return *calls;
  }

  // Adds a call. If there are more than kMaxPublicCalls, removes the oldest and ends it with the
  // gate's error.
  void Add(UnaryCallBase* call) {
    std::shared_ptr<UnaryCallBase> oldest;
    {
      MutexLock lock(&mu_);
      call->public_position_ = calls_.insert(calls_.end(), call->weak_from_this());
      if (calls_.size() > kMaxPublicCalls) oldest = calls_.front().lock();
    }
    if (oldest == nullptr) return;
    Remove(oldest.get());
    oldest->Finish(oldest->admitted_);
  }

  // Removes a call. If the call isn't in the list, does nothing.
  void Remove(UnaryCallBase* call) {
    MutexLock lock(&mu_);
    if (!call->public_position_.has_value()) return;
    calls_.erase(*std::exchange(call->public_position_, std::nullopt));
  }

 private:
  Mutex mu_;
  std::list<std::weak_ptr<UnaryCallBase>> calls_ ABSL_GUARDED_BY(mu_);
};

UnaryCallBase::UnaryCallBase(CallQueue* queue, std::unique_ptr<GrpcUnaryCall> grpc_call)
    : queue_(queue), grpc_call_(std::move(grpc_call)) {
  queue_->CallBegan();
}

UnaryCallBase::~UnaryCallBase() {
  if (!admitted_.ok()) PublicCalls::OfProcess().Remove(this);
  queue_->CallEnded();
}

void UnaryCallBase::Start(WorkerPool* workers) {
  workers_ = workers;
  admitted_ = admission_.Enter(queue_->gate(), &grpc_call_->context,
                               [this](const absl::Status& status) { Finish(status); });
  if (!admitted_.ok() && !MayBePublic()) return Finish(admitted_);
  if (!HasHandler()) {
    return Finish(absl::UnimplementedError(
        absl::StrCat("the server has no method ", grpc_call_->context.method())));
  }
  if (!admitted_.ok()) PublicCalls::OfProcess().Add(this);
  grpc_call_->stream.Read(&request_bytes_, read_.Begin(shared_from_this()));
}

void UnaryCallBase::OnRead(bool ok) {
  if (!ok) {
    Finish(absl::InvalidArgumentError("the call has no request, or one that is too large"));
    return;
  }
  admission_.RequestReceived(request_bytes_.Length());
  if (request_bytes_.Length() <= kMaxInlineRequestBytes) {
    Decode();
  } else {
    workers_->Post([self = shared_from_this()] { self->Decode(); });
  }
}

void UnaryCallBase::Decode() {
  if (over()) return;
  const absl::Status decoded = DecodeMessage(&request_bytes_, &request_message());
  request_bytes_.Clear();
  if (!decoded.ok()) return Finish(decoded);
  if (!admitted_.ok()) {
    PublicCalls::OfProcess().Remove(this);
    if (!IsPublic()) return Finish(admitted_);
    admission_.ServedAsPublic();
  }
  Handle();
}

void UnaryCallBase::OnDone(bool /*ok*/) {
  admission_.Leave();
  if (grpc_call_->context.IsCancelled()) admission_.Cancelled();
  // The server must end the call even if the client has cancelled it.
  if (!over()) Finish(absl::CancelledError("the client has gone"));
  SessionUse session;
  MutexLock lock(&mu_);
  session = std::move(session_);
}

void UnaryCallBase::Finish(const absl::Status& status) {
  const grpc::Status converted = ToGrpc(status);
  const grpc::ByteBuffer response =
      status.ok() ? EncodeMessage(response_message()) : grpc::ByteBuffer();
  MutexLock lock(&mu_);
  if (over_) return;
  over_ = true;
  // Begins the operation under the lock. OnDone() takes the lock, too, and no operation may begin
  // after it.
  void* const tag = finish_.Begin(shared_from_this());
  if (status.ok()) {
    grpc_call_->stream.WriteAndFinish(response, grpc::WriteOptions(), converted, tag);
  } else {
    grpc_call_->stream.Finish(converted, tag);
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

// Waits for one call of any unary method. Then waits for the next one and dispatches this one.
class UnaryDispatcher::PendingCall final : public std::enable_shared_from_this<PendingCall> {
 public:
  PendingCall(UnaryDispatcher* dispatcher, CallQueue* queue)
      : dispatcher_(dispatcher), queue_(queue), grpc_call_(std::make_unique<GrpcUnaryCall>()) {}

  void Await() {
    grpc_call_->context.AsyncNotifyWhenDone(grpc_call_->done.Begin(nullptr));
    dispatcher_->service_.RequestCall(&grpc_call_->context, &grpc_call_->stream, queue_->get(),
                                      queue_->get(), called_.Begin(shared_from_this()));
  }

 private:
  friend class CallEvent<PendingCall>;

  void OnCalled(bool ok) {
    if (!ok) return;  // the server shuts down; there is no call
    dispatcher_->Await(queue_);
    dispatcher_->Dispatch(queue_, std::move(grpc_call_));
  }
  void AfterEvent() {}

  UnaryDispatcher* const dispatcher_;
  CallQueue* const queue_;
  std::unique_ptr<GrpcUnaryCall> grpc_call_;
  CallEvent<PendingCall> called_{&PendingCall::OnCalled};
};

UnaryDispatcher::UnaryDispatcher(WorkerPool* workers)
    : workers_(workers),
      unknown_method_(
          MakeFactory<google::protobuf::Empty, google::protobuf::Empty>({.handle = nullptr})) {}

void UnaryDispatcher::Await(CallQueue* queue) {
  std::make_shared<PendingCall>(this, queue)->Await();
}

void UnaryDispatcher::Dispatch(CallQueue* queue, std::unique_ptr<GrpcUnaryCall> grpc_call) {
  CallEvent<UnaryCallBase>& done = grpc_call->done;
  const auto method = methods_.find(grpc_call->context.method());
  const CallFactory& make_call = method != methods_.end() ? method->second : unknown_method_;
  const std::shared_ptr<UnaryCallBase> call = make_call(queue, std::move(grpc_call));
  done.Begin(call);
  call->Start(workers_);
}

}  // namespace tensord::server
