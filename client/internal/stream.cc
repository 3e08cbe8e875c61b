#include "tensord/client/internal/stream.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "tensord/client/internal/wire.h"

namespace tensord::internal {

Stream::Stream(v1::TensorService::Stub* stub, const std::string& session, std::string address,
               CommandQueue* queue, ReplyTable* replies, std::function<void()> on_end)
    : address_(std::move(address)),
      queue_(queue),
      replies_(replies),
      on_end_(std::move(on_end)),
      call_(stub->SessionStream(&context_)),
      sender_([this, session] { SendLoop(session); }),
      receiver_([this] { ReceiveLoop(); }) {}

void Stream::Stop() {
  if (!receiver_.joinable()) return;
  context_.TryCancel();
  receiver_.join();
}

void Stream::SendLoop(const std::string& session) {
  v1::SessionStreamRequest message;
  message.mutable_attach()->set_session(session);
  do {
    if (!call_->Write(message)) return;  // the receiver learns why
  } while (queue_->Take(&message));
}

void Stream::ReceiveLoop() {
  v1::SessionStreamResponse response;
  while (call_->Read(&response)) {
    queue_->Acknowledge(response.commands_received());
    replies_->Deliver(&response);
  }
  queue_->StopTaking();
  sender_.join();
  const absl::Status reason = EndOfStream(call_->Finish());
  queue_->Close(reason);
  replies_->Fail(reason);
  on_end_();
}

absl::Status Stream::EndOfStream(const grpc::Status& status) const {
  switch (status.error_code()) {
    case grpc::StatusCode::OK:
      return absl::UnavailableError(
          absl::StrCat("tensord server at ", address_, " has ended the session's stream"));
    // What a broken connection may look like, depending on where it broke.
    case grpc::StatusCode::UNAVAILABLE:
    case grpc::StatusCode::CANCELLED:
    case grpc::StatusCode::UNKNOWN:
    case grpc::StatusCode::INTERNAL:
    case grpc::StatusCode::ABORTED:
      return absl::UnavailableError(absl::StrCat("lost the connection to the tensord server at ",
                                                 address_, ": ", status.error_message()));
    default:
      return StatusFromGrpc(status, address_);
  }
}

}  // namespace tensord::internal
