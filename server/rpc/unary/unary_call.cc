#include "tensord/server/rpc/unary/unary_call.h"

#include "tensord/server/rpc/chunk_codec.h"

namespace tensord::server {
namespace {

// The queue's thread decodes and handles requests up to this size. A worker handles larger ones.
constexpr size_t kMaxInlineRequestBytes = 64 << 10;
// The maximum number of refused calls whose requests the server waits for at once, because a
// request may be public.
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
  // authenticator's error.
  void Add(UnaryCallBase* call) {
    std::shared_ptr<UnaryCallBase> oldest;
    {
      MutexLock lock(&mu_);
      call->public_position_ = calls_.insert(calls_.end(), call->weak_from_this());
      if (calls_.size() > kMaxPublicCalls) oldest = calls_.front().lock();
    }
    if (oldest == nullptr) return;
    Remove(oldest.get());
    oldest->Finish(oldest->refused_);
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

UnaryCallBase::~UnaryCallBase() {
  if (!refused_.ok()) PublicCalls::OfProcess().Remove(this);
}

void UnaryCallBase::Delete() {
  if (!large_) {
    delete this;
    return;
  }
  workers_->Post(principal().get(), [this] { delete this; });
}

bool UnaryCallBase::MayWait(size_t bytes) const { return bytes > kMaxInlineRequestBytes; }

void UnaryCallBase::OnAdmitted() { StartRead(&request_bytes_); }

void UnaryCallBase::OnRefused(const absl::Status& status) {
  // INVALID_ARGUMENT means that the headers are too large. They must not stay in memory until the
  // request has arrived.
  if (!MayBePublic() || absl::IsInvalidArgument(status)) return Finish(status);
  refused_ = status;
  PublicCalls::OfProcess().Add(this);
  StartRead(&request_bytes_);
}

void UnaryCallBase::OnRead(bool ok) {
  if (ok) RequestComplete();
  if (!ok) {
    Finish(absl::InvalidArgumentError("the call has no request, or one that is too large"));
  } else if (!MayWait(request_bytes_.Length())) {
    Decode();
  } else {
    large_ = true;
    workers_->Post(
        principal().get(),
        [self = std::static_pointer_cast<UnaryCallBase>(shared_from_this())] { self->Decode(); });
  }
}

void UnaryCallBase::Decode() {
  if (MayWait(request_bytes_.Length())) ReleaseMessage();
  if (over()) return;
  const absl::Status decoded =
      DecodeMessage(&request_bytes_, &request_message(), principal(), &request_charge_);
  if (!decoded.ok()) return Finish(decoded);
  if (!refused_.ok()) {
    PublicCalls::OfProcess().Remove(this);
    if (!IsPublic()) return Finish(refused_);
    ServeAsPublic();
  }
  Handle();
}

void UnaryCallBase::OnDone() {
  ServerCall::OnDone();
  EndUse();
}

void UnaryCallBase::EndUse() {
  SessionUse session;
  TensorRef made;
  {
    MutexLock lock(&mu_);
    session = std::move(session_);
    made = std::move(made_);
  }
  if (made != nullptr) session->Abandon(std::move(made));
}

void UnaryCallBase::Finish(const absl::Status& status) {
  if (status.ok()) {
    const grpc::ByteBuffer encoded = EncodeMessage(response_message());
    // While a large response waits for its client, only the encoded form exists.
    if (response_bytes() != 0) FreeResponse();
    FinishWith(encoded);
  } else {
    ServerCall::Finish(status);
  }
}

void UnaryCallBase::Use(SessionUse session, TensorRef made) {
  {
    MutexLock lock(&mu_);
    session_ = std::move(session);
    made_ = std::move(made);
  }
  if (over()) EndUse();  // OnDone() may have come before
}

}  // namespace tensord::server
