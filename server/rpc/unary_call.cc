#include "tensord/server/rpc/unary_call.h"

#include "tensord/common/handover.h"
#include "tensord/server/rpc/status_convert.h"

namespace tensord::server {

UnaryCallBase::UnaryCallBase(CallQueue* queue) : queue_(queue) {
  context_.AsyncNotifyWhenDone(done_.Begin(nullptr));
}

UnaryCallBase::~UnaryCallBase() {
  if (begun_) queue_->CallEnded();
}

void UnaryCallBase::OnCalled(bool ok) {
  if (!ok) return;  // the server shuts down; there is no call
  begun_ = true;
  queue_->CallBegan();
  done_.Begin(shared_from_this());
  AwaitNext();
  const absl::Status admitted = admission_.Enter(
      queue_->gate(), &context_, [this](const absl::Status& status) { Finish(status); });
  if (admitted.ok() || OpenToAll()) {
    Handle();
  } else {
    Finish(admitted);
  }
}

void UnaryCallBase::OnDone(bool /*ok*/) {
  admission_.Leave();
  if (context_.IsCancelled()) queue_->gate()->TakenBack(context_);
  // gRPC wants to hear the end of a call also where the client has ended it.
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
  // With the lock: once gRPC has said that the call is done nothing may be begun.
  Respond(converted, finish_.Begin(shared_from_this()));
}

bool UnaryCallBase::over() const {
  MutexLock lock(&mu_);
  return over_;
}

void UnaryCallBase::Use(SessionUse session) {
  MutexLock lock(&mu_);
  session_ = std::move(session);
}

void LargeCall::Await(std::shared_ptr<const Method> method, CallQueue* queue) {
  const std::shared_ptr<LargeCall> call(new LargeCall(std::move(method), queue));
  call->method_->service->RequestCall(&call->context(), &call->wire_, queue->get(), queue->get(),
                                      call->BeginCall());
}

void LargeCall::Handle() {
  if (context().method() == method_->name) {
    ExpectMuch(true);
    wire_.Read(&request_, BeginRead());
  } else {
    Finish(absl::UnimplementedError("the server has no such method"));
  }
}

void LargeCall::OnRead(bool ok) {
  ExpectMuch(false);
  if (ok) {
    method_->handle(std::static_pointer_cast<LargeCall>(shared_from_this()));
  } else {
    Finish(absl::InvalidArgumentError("the call brings no request, or one that is too large"));
  }
}

void LargeCall::Respond(const grpc::Status& status, void* tag) {
  if (status.ok()) {
    wire_.WriteAndFinish(response_, grpc::WriteOptions(), status, tag);
  } else {
    wire_.Finish(status, tag);
  }
}

}  // namespace tensord::server
