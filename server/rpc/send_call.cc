#include "tensord/server/rpc/send_call.h"

#include <algorithm>
#include <utility>

#include "tensord/server/rpc/chunk_codec.h"
#include "tensord/server/rpc/proto_convert.h"
#include "tensord/server/rpc/status_convert.h"

namespace tensord::server {

SendCall::~SendCall() {
  if (!counted_) return;
  MutexLock lock(&bulk_->mu);
  if (--bulk_->reads == 0) bulk_->reads_ended.SignalAll();
}

bool SendCall::Enter() {
  MutexLock lock(&bulk_->mu);
  if (bulk_->draining) return false;
  ++bulk_->reads;
  counted_ = true;
  return true;
}

void SendCall::SetRange(TensorRef tensor, int64_t begin, int64_t end, BufferRef received) {
  tensor_ = std::move(tensor);
  available_ = received == nullptr ? end : 0;
  buffer_ = received == nullptr ? tensor_->buffer() : std::move(received);
  offset_ = begin;
  end_ = end;
}

bool SendCall::TensorFailed() {
  if (!tensor_->done() || tensor_->status().ok()) return false;
  FailWithTensor(tensor_->status());
  return true;
}

int64_t SendCall::Sendable() {
  if (available_ < end_) available_ = tensor_->done() ? end_ : std::min(end_, Available());
  return available_ - offset_;
}

void SendCall::GoOn() {
  if (finished_) return;
  if (TensorFailed()) return;
  if (!busy_ && !chunk_.has_value()) Prepare();
  if (writing_ || busy_ || !chunk_.has_value()) return;
  v1::TensorSpec spec;
  if (first_) ToProto(tensor_->spec(), &spec);
  const int64_t bytes = static_cast<int64_t>(chunk_->size());
  const grpc::ByteBuffer message = EncodeReadResponse(first_ ? &spec : nullptr, offset_, *chunk_);
  first_ = false;
  offset_ += bytes;
  chunk_.reset();
  if (offset_ == end_) {
    finished_ = sent_all_ = true;
    WriteAndFinish(message, Begin(kFinished));
    return;
  }
  writing_ = true;
  Write(message, Begin(kWritten));
  Prepare();
}

void SendCall::Written(bool ok) {
  writing_ = false;
  if (!ok) return Fail(ClientGone());
  if (begun()) GoOn();
}

void SendCall::Prepare() {
  const int64_t bytes = std::min(kChunkBytes, Sendable());
  if (bytes == 0 && offset_ < end_) {
    AwaitMore();
  } else if (bytes == 0) {
    chunk_ = grpc::Slice();
  } else if (tensor_->device().host_accessible()) {
    chunk_ = bulk_->lent.Lend(buffer_, offset_, bytes);
  } else {
    RunByWorker([this, bytes] {
      grpc::Slice staging(bytes);
      const absl::Status read =
          tensor_->device().Read(*buffer_, offset_, const_cast<uint8_t*>(staging.begin()), bytes);
      chunk_ = std::move(staging);
      return read;
    });
  }
}

void SendCall::Succeed() {
  finished_ = sent_all_ = true;
  Finish(grpc::Status::OK, Begin(kFinished));
}

void SendCall::Fail(const absl::Status& status) {
  if (finished_) return;
  finished_ = true;
  Finish(ToGrpc(status), Begin(kFinished));
}

}  // namespace tensord::server
