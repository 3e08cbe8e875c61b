#include "tensord/server/rpc/peer/peer_pull.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tensord/common/status_details.h"
#include "tensord/common/util/hex.h"
#include "tensord/server/rpc/bulk/shared_rings.h"
#include "tensord/server/rpc/peer/ticket_release.h"
#include "tensord/server/rpc/proto_convert.h"
#include "tensord/server/rpc/status_convert.h"
#include "tensord/server/session/session_table.h"
#include "tensord/server/session/tickets.h"

namespace tensord::server {
namespace {

// Returns whether another call may succeed: the code is one that gRPC uses for broken connections,
// or that a busy source returns.
bool IsTransient(const grpc::Status& status) {
  // gRPC's words for a message of more than kMaxResponseBytes (peers.cc).
  if (absl::StrContains(status.error_message(), "message larger than max")) return false;
  switch (status.error_code()) {
    case grpc::StatusCode::UNAVAILABLE:
    case grpc::StatusCode::INTERNAL:
    case grpc::StatusCode::UNKNOWN:
    case grpc::StatusCode::CANCELLED:
    case grpc::StatusCode::ABORTED:
    case grpc::StatusCode::DEADLINE_EXCEEDED:
    case grpc::StatusCode::RESOURCE_EXHAUSTED:
      return true;
    default:
      return false;
  }
}

}  // namespace

PeerPull::PeerPull(ServiceContext* context, Peers* peers, SessionRef session,
                   v1::PullTensorRequest request, bool promised_here, Charge counted)
    : context_(context),
      peers_(peers),
      session_(std::move(session)),
      request_(std::move(request)),
      promised_here_(promised_here),
      counted_(std::move(counted)),
      pull_id_(HexToBytes(RandomId())),
      upload_(context),
      store_(context, peers, session_->principal().get(), &upload_),
      parts_(peers, request_.source_address()) {}

void PeerPull::Start(const TensorRef& tensor, std::function<void(Outcome)> ended) {
  tensor_ = tensor;
  on_ended_ = std::move(ended);
  peers_->queue()->BeginOperation(this);
  const auto stop = [weak = weak_from_this()] {
    if (const std::shared_ptr<PeerPull> self = weak.lock()) self->Cancel();
  };
  absl::Status claimed = upload_.Claim(session_, request_.tensor(), stop);
  if (claimed.ok()) claimed = session_->FailAtEnd(tensor);
  if (!claimed.ok()) return End({.status = claimed});
  retries_.Restart();
  // Stops the pull if something else finishes the tensor: the session's end, the device's loss.
  tensor->WhenDone(stop);
  MutexLock lock(&mu_);
  due_set_ = true;
  due_alarm_.Set(peers_->queue()->get(), std::chrono::system_clock::now(),
                 due_.Begin(shared_from_this()));
}

void PeerPull::Cancel() {
  MutexLock lock(&mu_);
  stopped_ = true;
  if (attempt_ != nullptr) attempt_->call->Cancel();
  parts_.Cancel();
  if (due_set_) due_alarm_.Cancel();
}

bool PeerPull::stopped() const {
  MutexLock lock(&mu_);
  return stopped_;
}

void PeerPull::OnDue(bool /*ok*/) {
  {
    MutexLock lock(&mu_);
    due_set_ = false;
  }
  if (stopped()) return End(StoppedResult());
  StartAttempt();
}

template <typename Request>
Request PeerPull::TicketRequest() const {
  const Principal& principal = *session_->principal();
  Request request;
  request.set_ticket(request_.ticket());
  request.set_destination_epoch(context_->sessions->epoch());
  request.set_principal_kind(std::string(KindName(principal.kind())));
  request.set_principal_name(principal.name());
  request.set_pull_id(pull_id_);
  return request;
}

v1::FetchRequest PeerPull::FirstRequest() const {
  auto request = TicketRequest<v1::FetchRequest>();
  request.set_offset(upload_.written_bytes());
  const absl::StatusOr<TensorSpec> spec = FromProto(request_.tensor().spec());
  const bool large = spec.ok() && spec->size_bytes() - upload_.written_bytes() >= kMinSharedBytes;
  if (large && !avoid_ring_ && !parts_.started() &&
      peers_->MayShareWith(request_.source_address())) {
    request.set_boot_id(context_->boot_id);
  }
  return request;
}

void PeerPull::StartAttempt() {
  const v1::FetchRequest request = FirstRequest();
  auto attempt = std::make_unique<FetchAttempt>();
  attempt->wants_ring = !request.boot_id().empty();
  attempt->call = std::make_shared<SourceCall>(peers_, request_.source_address(), /*connection=*/0,
                                               store_.incoming());
  {
    MutexLock lock(&mu_);
    attempt_ = std::move(attempt);
    if (stopped_) attempt_->call->Cancel();
  }
  attempt_->call->Start(std::shared_ptr<SourceCall::User>(shared_from_this(), this), request,
                        /*sends_more=*/attempt_->wants_ring, retries_.Deadline(peers_->timeout()));
}

void PeerPull::OnMessageRead() {
  store_.SetReceived();
  ProcessNext();
}

void PeerPull::OnWorkerDone(bool /*ok*/) {
  if (store_.EndJob() == MessageStore::Job::kMapRing) {
    OnRingMapped();
  } else if (!store_.write_status().ok()) {
    Fail(store_.write_status());
  } else if (CancelIfWithdrawn()) {
    upload_.Rewind(store_.chunk_bytes());
  } else {
    OnChunkStored();
  }
  upload_.ReleaseTensor();
  if (attempt_->call->finished()) return AttemptEnded();
  ProcessNext();
}

void PeerPull::Fail(const absl::Status& status) {
  if (failure_.ok()) failure_ = status;
  attempt_->call->Cancel();
}

PeerPull::Result PeerPull::ClassifyAttempt() const {
  const grpc::Status& status = attempt_->call->status();
  if (!failure_.ok()) return {.status = failure_};
  const bool complete = progress_.begun() && upload_.written_bytes() == upload_.size_bytes();
  // If all bytes have arrived, the pull is complete even if the connection broke before the call's
  // status arrived.
  if (status.ok() || complete) return {};
  if (stopped()) return StoppedResult();
  const absl::Status error = FromGrpc(status);
  if (attempt_->call->has_trailing_metadata(kTensorErrorKey)) {
    return {.status = error};
  }
  const bool no_answer =
      !attempt_->call->answered() && status.error_code() == grpc::StatusCode::CANCELLED;
  const std::string distrust = attempt_->call->answered() ? "" : peers_->CertificateHint(status);
  const std::string message = absl::StrCat(request_.source_address(), ": ",
                                           no_answer           ? "it doesn't answer"
                                           : !distrust.empty() ? distrust
                                                               : status.error_message());
  // An invalid certificate of the source stays invalid, so another call is useless.
  const bool distrusted = absl::StrContains(message, "SSL_ERROR_SSL") ||
                          absl::StrContains(message, "is not in peer certificate");
  if (distrusted) {
    return {.status = WithErrorInfo(
                absl::PermissionDeniedError(absl::StrCat(
                    message, " (--peer-tls-ca must contain the authority of its certificate, ",
                    "and the certificate must contain the name in its address)")),
                "PEER_NOT_TRUSTED"),
            .leaves_promise = true};
  }
  if (IsTransient(status)) {
    return {.status = WithErrorInfo(absl::UnavailableError(message), "PEER_UNREACHABLE"),
            .leaves_promise = true,
            .retryable = true};
  }
  if (absl::IsUnimplemented(error)) {
    return {.status = absl::UnimplementedError(message), .leaves_promise = true};
  }
  const bool refused =
      absl::IsPermissionDenied(error) || absl::IsUnauthenticated(error) || absl::IsNotFound(error);
  if (refused) {
    const std::string reason = ErrorReason(error);
    return {.status = WithErrorInfo(absl::PermissionDeniedError(message),
                                    reason.empty() ? "PEER_REFUSED" : reason),
            .leaves_promise = true};
  }
  return {.status = WithPrefix(error, absl::StrCat(request_.source_address(), ": "))};
}

PeerPull::Result PeerPull::StoppedResult() const {
  const TensorRef tensor = tensor_.lock();
  if (tensor == nullptr) return {.status = absl::CancelledError(kTensorGone)};
  if (tensor->done() && !tensor->status().ok()) return {.status = tensor->status()};
  return {
      .status = WithErrorInfo(absl::UnavailableError("the pull was broken off"), "PULL_BROKEN_OFF"),
      .leaves_promise = true};
}

void PeerPull::AttemptEnded() {
  if (!attempt_->call->ended() || store_.busy()) return;
  if (attempt_->handed_over && failure_.ok()) {
    {
      MutexLock lock(&mu_);
      attempt_.reset();
    }
    return CollectParts();
  }
  Result result = ClassifyAttempt();
  const bool answered = attempt_->call->answered();
  avoid_ring_ = avoid_ring_ || attempt_->ring.mapped();
  {
    MutexLock lock(&mu_);
    attempt_.reset();
  }
  if (!result.retryable) return End(std::move(result));
  if (retries_.MayRetry(answered, progress_.bytes(), peers_->timeout())) return ScheduleAttempt();
  result.status = WithPrefix(result.status, absl::StrCat("no answer from another server for ",
                                                         peers_->timeout().count(), " s: "));
  End(std::move(result));
}

void PeerPull::ScheduleAttempt() {
  std::chrono::milliseconds pause = retries_.NextPause();
  MutexLock lock(&mu_);
  if (stopped_) pause = std::chrono::milliseconds(0);
  due_set_ = true;
  due_alarm_.Set(peers_->queue()->get(), std::chrono::system_clock::now() + pause,
                 due_.Begin(shared_from_this()));
}

void PeerPull::ReleaseTicket() {
  std::make_shared<TicketRelease>(peers_, std::move(counted_))
      ->Start(request_.source_address(), TicketRequest<v1::ReleaseTicketRequest>());
}

void PeerPull::End(Result result) {
  parts_.Abandon();
  awaits_parts_ = false;
  absl::Status& status = result.status;
  Outcome outcome{
      .path = progress_.mostly_shared() ? v1::COPY_PATH_SHARED_MEMORY : v1::COPY_PATH_NETWORK,
      .bytes = progress_.bytes(),
      .transfer = progress_.duration(),
      .resumptions = retries_.resumptions(),
      .connections = std::clamp(parts_.begun(), 1, peers_->connections())};
  if (status.ok()) status = upload_.AllocateMemory();
  if (status.ok()) {
    absl::StatusOr<TensorRef> finished = upload_.Finish();
    status = finished.status();
    if (finished.ok()) outcome.tensor = *std::move(finished);
  } else if (result.leaves_promise && !promised_here_) {
    upload_.Interrupt();
  } else {
    upload_.Fail(status);
  }
  if (!status.ok() && promised_here_) {
    if (const TensorRef tensor = tensor_.lock()) {
      session_->Remove(tensor);
      tensor->Finish(status);
    }
  }
  // PERMISSION_DENIED means that the source has refused the ticket, so there is nothing to release.
  if (!status.ok() && !absl::IsPermissionDenied(status)) ReleaseTicket();
  outcome.status = std::move(status);
  counted_ = Charge();
  std::exchange(on_ended_, nullptr)(std::move(outcome));
  peers_->queue()->EndOperation(this);
}

}  // namespace tensord::server
