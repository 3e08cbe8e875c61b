#include "tensord/server/rpc/peer/peer_check.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "tensord/common/status_details.h"

namespace tensord::server {

void PeerCheck::Start() {
  peers_->queue()->CallBegan();
  deadline_ = std::chrono::system_clock::now() + peers_->timeout();
  channel_ = peers_->Connect(address_);
  stub_ = v1::TensorService::NewStub(channel_);
  peer_stub_ = v1::PeerService::NewStub(channel_);
  Ask();
}

void PeerCheck::Prepare() {
  // Before the context: they lie in memory of the call's.
  asking_.reset();
  fetching_.reset();
  context_ = std::make_unique<grpc::ClientContext>();
  context_->set_deadline(deadline_);
  peers_->Authorize(context_.get());
}

void PeerCheck::Ask() {
  Prepare();
  asked_ = std::chrono::steady_clock::now();
  asking_ = stub_->AsyncGetServerInfo(context_.get(), {}, peers_->queue()->get());
  asking_->Finish(response_.mutable_server(), &status_, answer_.Begin(shared_from_this()));
}

void PeerCheck::OnAnswer(bool /*ok*/) {
  if (!status_.ok()) return End(status_);
  if (!std::exchange(asked_twice_, true)) return Ask();
  response_.set_round_trip_nanoseconds(
      std::chrono::nanoseconds(std::chrono::steady_clock::now() - asked_).count());
  Knock();
}

void PeerCheck::Knock() {
  Prepare();
  fetching_ = peer_stub_->AsyncFetch(context_.get(), peers_->queue()->get(),
                                     knocked_.Begin(shared_from_this()));
}

void PeerCheck::OnKnocked(bool ok) {
  if (!ok) return OnRead(false);
  fetching_->WriteLast({}, grpc::WriteOptions(), shown_.Begin(shared_from_this()));
}

void PeerCheck::OnShown(bool /*ok*/) {
  fetching_->Read(&nothing_, read_.Begin(shared_from_this()));
}

void PeerCheck::OnRead(bool /*ok*/) {
  fetching_->Finish(&status_, refused_.Begin(shared_from_this()));
}

void PeerCheck::OnRefused(bool /*ok*/) {
  absl::Status refused(static_cast<absl::StatusCode>(status_.error_code()),
                       status_.error_message());
  DecodeDetails(status_.error_details(), &refused);
  End(ErrorReason(refused) == "TICKET_REFUSED" ? grpc::Status::OK : status_);
}

void PeerCheck::End(const grpc::Status& status) {
  const std::string distrust = peers_->Distrust(status);
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
  peers_->queue()->CallEnded();
}

}  // namespace tensord::server
