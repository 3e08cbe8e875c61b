#include "tensord/server/rpc/server_call.h"

#include "tensord/server/rpc/status_convert.h"

namespace tensord::server {

GrpcCall::GrpcCall(CallQueue* queue) : queue_(queue), stream_(&context_) {
  TsanRelease(static_cast<QueueEvent*>(&done_));
  context_.AsyncNotifyWhenDone(static_cast<QueueEvent*>(&done_));
}

void GrpcCall::Arrived() {
  arrived_at_ = std::chrono::steady_clock::now();
  queue_->AddCall();
  count_.queue = queue_;
}

GrpcCall::QueueCount::~QueueCount() {
  if (queue != nullptr) queue->RemoveCall();
}

const void* GrpcCall::DoneEvent::owner() const {
  return call == nullptr ? nullptr : call->event_owner();
}

void GrpcCall::DoneEvent::OnCompleted(bool /*ok*/) {
  completed = true;
  const std::shared_ptr<ServerCall> done = std::move(call);
  if (done == nullptr) return;  // Start() handles it
  done->HandleDone();
  done->AfterEvent();
}

ServerCall::ServerCall(std::unique_ptr<GrpcCall> grpc_call) : grpc_call_(std::move(grpc_call)) {}

namespace {

void ReturnResponseBytes(const PrincipalRef& owner, int64_t bytes) {
  owner->response_queue().Return(BudgetOf(owner, PrincipalLimit::kResponseBytes), bytes);
}

}  // namespace

ServerCall::~ServerCall() {
  if (group_ != nullptr) group_->Remove(this);
  ReturnResponse();
}

void ServerCall::WhenResponseFits(int64_t bytes, std::function<void()> build) {
  if (bytes <= kMaxUncountedResponseBytes) return build();
  const PrincipalRef owner = principal();
  owner->response_queue().WhenFits(
      BudgetOf(owner, PrincipalLimit::kResponseBytes), bytes,
      [weak = weak_from_this(), owner, bytes, build = std::move(build)] {
        const std::shared_ptr<ServerCall> call = weak.lock();
        if (call == nullptr) return ReturnResponseBytes(owner, bytes);
        call->response_bytes_ = bytes;
        if (!call->finished()) build();
      });
}

void ServerCall::ReturnResponse() {
  const int64_t bytes = response_bytes_.exchange(0);
  if (bytes != 0) ReturnResponseBytes(principal(), bytes);
}

void ServerCall::Start() {
  const bool done_early = grpc_call_->done_.completed;
  if (!done_early) grpc_call_->done_.call = shared_from_this();
  const absl::Status admitted =
      admission_.Admit(queue()->authenticator(), &context(), [this](const absl::Status& status) {
        // Runs on another thread. While it runs, this call exists, or its destructor waits in
        // ~Admission().
        Post(weak_from_this().lock(), [this, status] { OnRevoked(status); });
      });
  if (admitted.ok()) {
    OnAdmitted();
  } else {
    OnRefused(admitted);
  }
  if (done_early) HandleDone();
  AfterEvent();
}

void ServerCall::HandleRead(bool ok) {
  if (ok) {
    const size_t bytes = incoming_->Length();
    admission_.SetAtWork();
    waiting_bytes_ = bytes;
    CountReceived(static_cast<int64_t>(bytes));
    const absl::Status fits = admission_.CheckMessageSize(bytes);
    if (!fits.ok()) {
      incoming_->Clear();
      ReleaseMessage();
      OnRevoked(fits);
      return OnRead(false);
    }
    if (!MayWait(bytes)) ReleaseMessage();
  } else if (!done_ && !finished()) {
    half_closed_ = true;
  }
  OnRead(ok);
}

void ServerCall::ReleaseMessage() { admission_.MessageReleased(std::exchange(waiting_bytes_, 0)); }

void ServerCall::HandleDone() {
  admission_.Release();
  if (half_closed_ && !cancelled()) admission_.RequestComplete();
  if (counts_cancellation_ && cancelled()) admission_.Cancelled();
  done_ = true;
  OnDone();
}

void ServerCall::StartRead(grpc::ByteBuffer* message) {
  incoming_ = message;
  admission_.ReadBegins();
  grpc_call_->stream().Read(message, read_.Begin(shared_from_this()));
}

void ServerCall::StartWrite(const grpc::ByteBuffer& message) {
  const size_t bytes = message.Length();
  admission_.MessageSent(bytes);
  CountSent(static_cast<int64_t>(bytes));
  grpc_call_->stream().Write(message, written_.Begin(shared_from_this()));
}

// The operations below begin under the lock. If OnDone() has to finish the call, it takes the lock,
// too. So no operation begins after OnDone().
void ServerCall::SendInitialMetadata(const std::string& key, const std::string& value) {
  MutexLock lock(&mu_);
  if (finished_) return;
  context().AddInitialMetadata(key, value);
  grpc_call_->stream().SendInitialMetadata(written_.Begin(shared_from_this()));
}

void ServerCall::Finish(const absl::Status& status) {
  const grpc::Status converted = ToGrpc(status);
  MutexLock lock(&mu_);
  if (!BeginFinish(converted.error_code())) return;
  grpc_call_->stream().Finish(converted, finish_.Begin(shared_from_this()));
}

void ServerCall::FinishWith(const grpc::ByteBuffer& message) {
  MutexLock lock(&mu_);
  if (!BeginFinish(grpc::StatusCode::OK)) return;
  CountSent(static_cast<int64_t>(message.Length()));
  grpc_call_->stream().WriteAndFinish(message, grpc::WriteOptions(), grpc::Status::OK,
                                      finish_.Begin(shared_from_this()));
}

bool ServerCall::BeginFinish(grpc::StatusCode code) {
  if (std::exchange(finished_, true)) return false;
  admission_.Answered();
  grpc_call_->counters_->CountEnd(code, std::chrono::steady_clock::now() - grpc_call_->arrived_at_);
  return true;
}

void ServerCall::CountReceived(int64_t bytes) {
  if (principal() == nullptr) return;
  principal()->counters().CountReceived(grpc_call_->counters_->transfer(), bytes);
}

void ServerCall::CountSent(int64_t bytes) {
  if (principal() == nullptr) return;
  principal()->counters().CountSent(grpc_call_->counters_->transfer(), bytes);
}

bool ServerCall::finished() const {
  MutexLock lock(&mu_);
  return finished_;
}

bool ServerCall::Join(CallGroup* group) {
  if (!group->Add(this)) return false;
  group_ = group;
  return true;
}

void ServerCall::PostDrain(void (ServerCall::*event)()) {
  Post(weak_from_this().lock(), [this, event] { (this->*event)(); });
}

}  // namespace tensord::server
