#include "tensord/server/rpc/peer/ticket_release.h"

namespace tensord::server {

void TicketRelease::Start(const std::string& address, const v1::ReleaseTicketRequest& request) {
  peers_->queue()->BeginOperation(this);
  peers_->Authorize(&context_);
  context_.set_deadline(std::chrono::system_clock::now() + kTimeout);
  context_.set_wait_for_ready(true);  // the connection may have just broken
  call_ = v1::PeerService::NewStub(peers_->Connect(address))
              ->AsyncReleaseTicket(&context_, request, peers_->queue()->get());
  call_->Finish(&response_, &status_, finished_.Begin(shared_from_this()));
}

void TicketRelease::OnFinished(bool /*ok*/) {
  counted_ = Charge();
  peers_->queue()->EndOperation(this);
}

}  // namespace tensord::server
