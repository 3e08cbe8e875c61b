#include "tensord/server/rpc/peer/range_fetch.h"

#include <chrono>
#include <utility>

namespace tensord::server {
namespace {

// What is too slow for this goes on without parts.
constexpr std::chrono::seconds kMaxTime{60};

}  // namespace

RangeFetch::RangeFetch(Peers* peers, BufferRef buffer, int64_t begin, int64_t end,
                       std::function<void()> news)
    : peers_(peers), buffer_(std::move(buffer)), begin_(begin), end_(end), news_(std::move(news)) {}

void RangeFetch::Start(const std::string& address, int connection, v1::FetchRequest request) {
  request_ = std::move(request);
  request_.set_offset(begin_);
  request_.set_limit_bytes(end_ - begin_);
  peers_->queue()->CallBegan();
  peers_->Authorize(&context_);
  context_.set_deadline(std::chrono::system_clock::now() + kMaxTime);
  grpc::GenericStub stub(peers_->Connect(address, connection));
  call_ = stub.PrepareCall(&context_, kFetchMethod, peers_->queue()->get());
  call_->StartCall(started_.Begin(shared_from_this()));
}

void RangeFetch::Abandon() {
  abandoned_ = true;
  news_ = nullptr;
  Cancel();
}

void RangeFetch::OnStarted(bool ok) {
  if (!ok) return Finish();
  call_->WriteLast(EncodeMessage(request_), grpc::WriteOptions(), asked_.Begin(shared_from_this()));
}

void RangeFetch::OnAsked(bool ok) {
  if (!ok) return Finish();
  call_->Read(&incoming_, read_.Begin(shared_from_this()));
}

void RangeFetch::OnRead(bool ok) {
  if (!ok) return Finish();
  const int64_t before = landed_;
  if (!abandoned_ && !Land()) Cancel();
  call_->Read(&incoming_, read_.Begin(shared_from_this()));
  if (landed_ == before || abandoned_) return;
  const std::function<void()> news = news_;  // which may have this one abandoned
  news();
}

bool RangeFetch::Land() {
  const absl::StatusOr<FetchChunk> chunk = DecodeFetchResponse(&incoming_);
  if (!chunk.ok() || chunk->has_ring || chunk->has_slot) return false;
  if (chunk->data_bytes == 0) return true;
  if (chunk->offset != begin_ + landed_ || chunk->data_bytes > end_ - chunk->offset) return false;
  CopyOut(&incoming_, chunk->data_position, chunk->data_bytes,
          static_cast<uint8_t*>(buffer_->data()) + chunk->offset);
  landed_ += chunk->data_bytes;
  return true;
}

void RangeFetch::Finish() { call_->Finish(&status_, finished_.Begin(shared_from_this())); }

void RangeFetch::OnFinished(bool /*ok*/) {
  ended_ = true;
  const std::function<void()> news = std::exchange(news_, nullptr);
  if (!abandoned_) news();
  peers_->queue()->CallEnded();
}

}  // namespace tensord::server
