#include "tensord/server/rpc/peer/ticket_release.h"

#include "tensord/server/rpc/chunk_codec.h"

namespace tensord::server {

void TicketRelease::Start(const std::string& address, v1::FetchRequest request) {
  request.set_release(true);
  peers_->queue()->Began(this);
  peers_->Authorize(&context_);
  context_.set_deadline(std::chrono::system_clock::now() + kTimeout);
  context_.set_wait_for_ready(true);  // the connection may have just broken
  grpc::GenericStub stub(peers_->Connect(address));
  call_ = stub.PrepareUnaryCall(&context_, kFetchMethod, EncodeMessage(request),
                                peers_->queue()->get());
  call_->StartCall();
  call_->Finish(&response_, &status_, finished_.Begin(shared_from_this()));
}

// Ignores the status: the source sends no response, so gRPC reports an error even if the source has
// released the ticket.
void TicketRelease::OnFinished(bool /*ok*/) {
  counted_ = UsageHold();
  peers_->queue()->Ended(this);
}

}  // namespace tensord::server
