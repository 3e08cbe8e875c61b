#include "tensord/client/internal/stream_call.h"

#include "tensord/client/internal/bulk_codec.h"
#include "tensord/common/util/tsan_annotations.h"

namespace tensord::internal {
namespace {

using Message = std::shared_ptr<const std::string>;

// Returns a buffer that shares the message's bytes and ownership.
grpc::ByteBuffer ToBuffer(Message message) {
  auto* owned = new Message(std::move(message));
  const auto destroy = [](void* held) {
    TsanAcquire(held);
    delete static_cast<Message*>(held);
  };
  const grpc::Slice slice(const_cast<char*>((*owned)->data()), (*owned)->size(), destroy, owned);
  TsanRelease(owned);
  return grpc::ByteBuffer(&slice, 1);
}

}  // namespace

void StreamCall::Attach(std::string message) {
  wire_->Write(ToBuffer(std::make_shared<const std::string>(std::move(message))),
               ToTag(StreamEvent::kAttachWritten));
}

void StreamCall::Write(Message message) {
  wire_->Write(ToBuffer(std::move(message)), ToTag(StreamEvent::kMessageWritten));
}

bool StreamCall::TakeResponse(v1::SessionStreamResponse* response, int64_t* bytes) {
  *bytes = static_cast<int64_t>(response_.Length());
  return DecodeMessage(&response_, response);
}

}  // namespace tensord::internal
