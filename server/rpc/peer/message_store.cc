#include "tensord/server/rpc/peer/message_store.h"

#include <chrono>
#include <utility>

#include "tensord/common/util/stream_copy.h"
#include "tensord/common/util/tsan_annotations.h"

namespace tensord::server {

bool MessageStore::TakeNext() {
  if (busy_ || !has_incoming_) return false;
  has_incoming_ = false;
  message_.Swap(&incoming_);
  incoming_.Clear();
  return true;
}

void MessageStore::CopyToHost(const FetchChunk& chunk, int64_t bytes, const uint8_t* slot) {
  chunk_ = chunk;
  chunk_bytes_ = bytes;
  if (slot != nullptr) {
    StreamCopy(upload_->destination(), slot, bytes);
  } else {
    CopyOut(&message_, chunk.data_position, bytes, upload_->destination());
  }
}

void MessageStore::WriteByWorker(const FetchChunk& chunk, int64_t bytes, const uint8_t* slot,
                                 void* tag) {
  chunk_ = chunk;
  chunk_bytes_ = bytes;
  const auto write = [this, slot, bytes] {
    const auto copy_out = [this](int64_t at, int64_t size, void* to) {
      CopyOut(&message_, chunk_.data_position + at, size, to);
    };
    write_status_ =
        slot != nullptr ? upload_->Write(slot, bytes) : upload_->WriteBy(bytes, copy_out);
  };
  RunByWorker(write, tag);
}

void MessageStore::MapByWorker(const v1::SharedRing& ring, RingReceiver* receiver, void* tag) {
  maps_ring_ = true;
  RunByWorker([ring, receiver] { receiver->Map(ring); }, tag);
}

MessageStore::Job MessageStore::EndJob() {
  busy_ = false;
  return std::exchange(maps_ring_, false) ? Job::kMapRing : Job::kWrite;
}

void MessageStore::RunByWorker(std::function<void()> work, void* tag) {
  busy_ = true;
  grpc::CompletionQueue* const queue = peers_->queue()->get();
  context_->workers->Post(owner_, [this, work = std::move(work), tag, queue] {
    work();
    TsanRelease(tag);
    worker_done_alarm_.Set(queue, std::chrono::system_clock::time_point(), tag);
  });
}

}  // namespace tensord::server
