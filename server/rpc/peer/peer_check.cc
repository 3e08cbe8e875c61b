#include "tensord/server/rpc/peer/peer_check.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "tensord/common/status_details.h"
#include "tensord/server/rpc/status_convert.h"

namespace tensord::server {

void PeerCheck::Start() {
  deadline_ = std::chrono::system_clock::now() + peers_->timeout();
  channel_ = peers_->Connect(address_);
  stub_ = v1::TensorService::NewStub(channel_);
  peers_->queue()->BeginOperation(this);
  RequestInfo();
}

void PeerCheck::Cancel() {
  MutexLock lock(&mu_);
  cancelled_ = true;
  if (context_ != nullptr) context_->TryCancel();
}

void PeerCheck::Prepare() {
  // Destroys the previous calls before their context, because they are allocated in its arena.
  info_call_.reset();
  release_call_.reset();
  auto context = std::make_unique<grpc::ClientContext>();
  context->set_deadline(deadline_);
  peers_->Authorize(context.get());
  MutexLock lock(&mu_);
  context_ = std::move(context);
  if (cancelled_) context_->TryCancel();
}

void PeerCheck::RequestInfo() {
  Prepare();
  info_requested_at_ = std::chrono::steady_clock::now();
  info_call_ = stub_->AsyncGetServerInfo(context_.get(), {}, peers_->queue()->get());
  info_call_->Finish(response_.mutable_server(), &status_, info_.Begin(shared_from_this()));
}

void PeerCheck::OnInfo(bool /*ok*/) {
  if (!status_.ok()) return End(status_);
  if (!std::exchange(info_requested_twice_, true)) return RequestInfo();
  response_.set_round_trip_nanoseconds(
      std::chrono::nanoseconds(std::chrono::steady_clock::now() - info_requested_at_).count());
  Prepare();
  release_call_ = v1::PeerService::NewStub(channel_)->AsyncReleaseTicket(context_.get(), {},
                                                                         peers_->queue()->get());
  release_call_->Finish(&release_response_, &status_, released_.Begin(shared_from_this()));
}

void PeerCheck::OnReleased(bool /*ok*/) {
  End(ErrorReason(FromGrpc(status_)) == "TICKET_REFUSED" ? grpc::Status::OK : status_);
}

void PeerCheck::End(const grpc::Status& status) {
  const std::string distrust = peers_->CertificateHint(status);
  if (!distrust.empty()) {
    response_.set_code(static_cast<int>(grpc::StatusCode::UNAUTHENTICATED));
    response_.set_message(distrust);
  } else if (status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED) {
    response_.set_code(static_cast<int>(grpc::StatusCode::UNAVAILABLE));
    response_.set_message(absl::StrCat("no answer within ", peers_->timeout().count(), " s"));
  } else if (!status.ok()) {
    response_.set_code(static_cast<int>(status.error_code()));
    response_.set_message(status.error_message());
  }
  if (response_.server().epoch().empty()) response_.clear_server();
  done_(response_);
  peers_->queue()->EndOperation(this);
}

}  // namespace tensord::server
