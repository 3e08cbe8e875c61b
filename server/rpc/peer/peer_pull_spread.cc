// PeerPull: receives over several connections, in parallel parts that are counted in order.
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "tensord/server/rpc/peer/peer_pull.h"

namespace tensord::server {

int64_t PeerPull::AttemptEnd() const {
  return parts_.empty() ? upload_.size_bytes() : parts_.front()->begin();
}

void PeerPull::MaybeSpread() {
  if (parts_.started() || !upload_.host_accessible()) return;
  const int64_t left_bytes = upload_.size_bytes() - upload_.written_bytes();
  const auto elapsed = progress_.last_byte() - attempt_->first_byte;
  if (!parts_.MaySpeedUp(elapsed, attempt_->bytes, left_bytes)) return;
  // The current call continues up to the first part.
  parts_.Start(upload_.buffer(), upload_.written_bytes(), upload_.size_bytes());
  BeginParts();
}

void PeerPull::BeginParts() {
  parts_.BeginMore(FirstRequest(), [self = shared_from_this()] { self->OnPartProgress(); });
}

void PeerPull::OnPartProgress() {
  if (attempt_ == nullptr && awaits_parts_) CollectParts();
}

void PeerPull::CollectParts() {
  awaits_parts_ = true;
  if (stopped()) return End(StoppedResult());
  const absl::Cleanup release = [this] { upload_.ReleaseTensor(); };
  const absl::Status held = upload_.AllocateMemory();
  if (!held.ok()) return End({.status = held});
  while (!parts_.empty()) {
    const std::shared_ptr<RangeFetch> part = parts_.front();
    const int64_t bytes = part->begin() + part->stored_bytes() - upload_.written_bytes();
    if (bytes > 0) {
      const absl::Status fits = upload_.Check(upload_.written_bytes(), bytes);
      if (!fits.ok()) return End({.status = fits});
      CountReceived(bytes, /*shared=*/false);
      upload_.Advance(bytes);
    }
    if (!part->complete() && !part->ended()) return;  // OnPartProgress() continues
    parts_.PopFront();
    if (!part->complete()) {
      parts_.StopStartingParts();
      break;
    }
    BeginParts();
  }
  awaits_parts_ = false;
  if (upload_.written_bytes() < upload_.size_bytes()) {
    retries_.Restart();
    return StartAttempt();  // it fetches the bytes that no part has received
  }
  // The source drops the ticket's reference to the tensor only after a call without a limit.
  parts_.FetchEnd(FirstRequest());
  End({});
}

}  // namespace tensord::server
