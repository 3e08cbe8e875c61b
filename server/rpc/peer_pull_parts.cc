// A fetch over several connections, in parts that are fetched side by side and taken in order.
#include <algorithm>
#include <utility>

#include "tensord/server/rpc/peer_pull.h"
#include "tensord/server/rpc/proto_convert.h"

namespace tensord::server {
namespace {

// What one connection is watched for before others are made, what is then to be left, and the rate
// beyond which this machine and not the connection is what holds the copy up.
constexpr std::chrono::milliseconds kLookTime{100};
constexpr int64_t kLeastSpreadBytes = 32 << 20;
constexpr double kFastBytesPerSecond = 1e9;
// Small, so that what has come without a gap, which others may be waiting for, grows steadily.
constexpr int64_t kPartBytes = 8 << 20;
constexpr size_t kPartsOfAConnection = 2;

}  // namespace

int64_t PeerPull::AttemptEnd() const {
  return parts_.empty() ? upload_.size_bytes() : parts_.front()->begin();
}

void PeerPull::MaybeSpread() {
  if (spread_ || peers_->connections() < 2 || !upload_.host_accessible()) return;
  const auto elapsed = last_byte_ - attempt_->first_byte;
  if (elapsed < kLookTime || upload_.size_bytes() - upload_.written_bytes() < kLeastSpreadBytes) {
    return;
  }
  const double seconds = std::chrono::duration<double>(elapsed).count();
  if (static_cast<double>(attempt_->bytes) >= kFastBytesPerSecond * seconds) return;
  spread_ = true;
  // The attempt goes on until it meets the first.
  next_part_ = upload_.written_bytes() + kPartBytes;
  BeginParts();
}

void PeerPull::BeginParts() {
  const size_t most = kPartsOfAConnection * peers_->connections();
  while (!part_failed_ && parts_.size() < most && next_part_ < upload_.size_bytes()) {
    const int64_t begin = next_part_;
    next_part_ = std::min(begin + kPartBytes, upload_.size_bytes());
    auto part = std::make_shared<PullPart>(peers_, upload_.buffer(), begin, next_part_,
                                           [self = shared_from_this()] { self->OnPartNews(); });
    {
      MutexLock lock(&mu_);
      parts_.push_back(part);
      if (stopped_) part->Cancel();
    }
    part->Start(request_.source_address(), parts_begun_++ % peers_->connections(), FirstRequest());
  }
}

void PeerPull::OnPartNews() {
  if (attempt_ == nullptr && awaits_parts_) TakeParts();
}

void PeerPull::TakeParts() {
  awaits_parts_ = true;
  if (stopped()) return End(WhyStopped());
  if (!upload_.wanted()) return End({.status = absl::CancelledError(kTensorUnwanted)});
  while (!parts_.empty()) {
    const std::shared_ptr<PullPart> part = parts_.front();
    const int64_t bytes = part->begin() + part->landed() - upload_.written_bytes();
    if (bytes > 0) {
      const absl::Status fits = upload_.Check(upload_.written_bytes(), bytes);
      if (!fits.ok()) return End({.status = fits});
      bytes_ += bytes;
      upload_.Advance(bytes);
      last_byte_ = Clock::now();
    }
    if (!part->complete() && !part->ended()) return;  // there will be news of it
    {
      MutexLock lock(&mu_);
      parts_.pop_front();
    }
    if (!part->complete()) {
      part_failed_ = true;
      break;
    }
    BeginParts();
  }
  awaits_parts_ = false;
  if (upload_.written_bytes() < upload_.size_bytes()) {
    out_of_reach_since_ = Clock::now();
    return Dial();  // what no part brings
  }
  // The ticket is used up by who asks for the end.
  const auto farewell = std::make_shared<PullPart>(peers_, upload_.buffer(), upload_.size_bytes(),
                                                   upload_.size_bytes(), [] {});
  farewell->Start(request_.source_address(), 0, FirstRequest());
  End({});
}

void PeerPull::AbandonParts() {
  std::deque<std::shared_ptr<PullPart>> parts;
  {
    MutexLock lock(&mu_);
    parts.swap(parts_);
  }
  for (const std::shared_ptr<PullPart>& part : parts) part->Abandon();
}

}  // namespace tensord::server
