#include "tensord/server/rpc/bulk/send_call.h"

#include <algorithm>
#include <utility>

#include "tensord/server/rpc/chunk_codec.h"
#include "tensord/server/rpc/proto_convert.h"

namespace tensord::server {

absl::Status SendCall::JoinReads() {
  if (Join(&bulk_->service->reads)) return absl::OkStatus();
  return absl::UnavailableError("the server is shutting down");
}

void SendCall::SetRange(TensorRef tensor, int64_t begin, int64_t end, BufferRef received) {
  tensor_ = std::move(tensor);
  available_end_ = received == nullptr ? end : 0;
  buffer_ = received == nullptr ? tensor_->buffer() : std::move(received);
  offset_ = begin;
  end_ = end;
}

bool SendCall::FailIfTensorFailed() {
  if (!tensor_->done() || tensor_->status().ok()) return false;
  FailWithTensor(tensor_->status());
  return true;
}

int64_t SendCall::SendableBytes() {
  if (available_end_ < end_) {
    available_end_ = tensor_->done() ? end_ : std::min(end_, AvailableEnd());
  }
  return available_end_ - offset_;
}

void SendCall::SendNext() {
  if (finished()) return;
  if (FailIfTensorFailed()) return;
  if (!busy() && !chunk_.has_value()) PrepareChunk();
  if (writing_ || busy() || !chunk_.has_value()) return;
  v1::TensorSpec spec;
  if (first_) ToProto(tensor_->spec(), &spec);
  const int64_t bytes = static_cast<int64_t>(chunk_->size());
  const grpc::ByteBuffer message = EncodeReadResponse(first_ ? &spec : nullptr, offset_, *chunk_);
  first_ = false;
  offset_ += bytes;
  chunk_.reset();
  if (offset_ == end_) {
    sent_all_ = true;
    FinishWith(message);
    return;
  }
  writing_ = true;
  StartWrite(message);
  PrepareChunk();
}

void SendCall::OnWritten(bool ok) {
  writing_ = false;
  if (!ok) return Fail(ClientDisconnected());
  if (begun()) SendNext();
}

void SendCall::PrepareChunk() {
  const int64_t bytes = std::min(kChunkBytes, SendableBytes());
  if (bytes == 0 && offset_ < end_) {
    AwaitMore();
  } else if (bytes == 0) {
    chunk_ = grpc::Slice();
  } else if (tensor_->device().host_accessible()) {
    chunk_ = bulk_->slices.Make(buffer_, offset_, bytes);
  } else if (response_bytes() == 0) {
    AwaitRoom();
  } else {
    RunByWorker(
        [this, bytes] {
          grpc::Slice staging(bytes);
          const absl::Status read = tensor_->device().Read(
              *buffer_, offset_, const_cast<uint8_t*>(staging.begin()), bytes);
          chunk_ = std::move(staging);
          return read;
        },
        [this] { SendNext(); });
  }
}

void SendCall::AwaitRoom() {
  // WhenResponseFits() doesn't count a smaller amount. Then PrepareChunk() would wait again.
  const int64_t bytes = std::clamp(end_ - offset_, kMaxUncountedResponseBytes + 1, 2 * kChunkBytes);
  Wait([this, bytes](auto on_room) { WhenResponseFits(bytes, on_room); }, [this] { SendNext(); });
}

void SendCall::Succeed() {
  sent_all_ = true;
  Finish(absl::OkStatus());
}

}  // namespace tensord::server
