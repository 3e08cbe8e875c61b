#include "tensord/server/rpc/peer/range_fetch.h"

#include <chrono>
#include <utility>

#include "tensord/server/rpc/chunk_codec.h"

namespace tensord::server {
namespace {

// The deadline of a part. If it passes, another call fetches the part's missing bytes.
constexpr std::chrono::seconds kMaxTime{60};

}  // namespace

RangeFetch::RangeFetch(Peers* peers, const std::string& address, int connection, BufferRef buffer,
                       int64_t begin, int64_t end, std::function<void()> on_progress)
    : peers_(peers),
      buffer_(std::move(buffer)),
      begin_(begin),
      end_(end),
      on_progress_(std::move(on_progress)),
      call_(std::make_shared<SourceCall>(peers, address, connection, &incoming_)) {}

void RangeFetch::Start(v1::FetchRequest request) {
  request.set_offset(begin_);
  request.set_limit_bytes(end_ - begin_);
  peers_->queue()->BeginOperation(this);
  call_->Start(std::shared_ptr<SourceCall::User>(shared_from_this(), this), request,
               /*sends_more=*/false, SourceCall::Clock::now() + kMaxTime);
}

void RangeFetch::Abandon() {
  abandoned_ = true;
  on_progress_ = nullptr;
  Cancel();
}

void RangeFetch::OnMessageRead() {
  const int64_t before = stored_bytes_;
  if (!abandoned_ && !StoreChunk()) Cancel();
  call_->ReadNext();
  if (stored_bytes_ == before || abandoned_) return;
  const std::function<void()> on_progress = on_progress_;  // a copy: the call may run Abandon()
  on_progress();
}

bool RangeFetch::StoreChunk() {
  const absl::StatusOr<FetchChunk> chunk = DecodeFetchResponse(&incoming_);
  if (!chunk.ok() || chunk->has_ring || chunk->has_slot) return false;
  if (chunk->data_bytes == 0) return true;
  if (chunk->offset != begin_ + stored_bytes_ || chunk->data_bytes > end_ - chunk->offset)
    return false;
  CopyOut(&incoming_, chunk->data_position, chunk->data_bytes,
          static_cast<uint8_t*>(buffer_->data()) + chunk->offset);
  stored_bytes_ += chunk->data_bytes;
  return true;
}

void RangeFetch::OnCallEnded() {
  ended_ = true;
  const std::function<void()> on_progress = std::exchange(on_progress_, nullptr);
  if (!abandoned_) on_progress();
  peers_->queue()->EndOperation(this);
}

}  // namespace tensord::server
