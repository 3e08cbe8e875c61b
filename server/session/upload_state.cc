#include "tensord/server/session/upload_state.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tensord/server/session/tensor.h"

namespace tensord::server {

UploadState::~UploadState() {
  MutexLock lock(&mu_);
  if (state_ == State::kActive && stop_) stop_();
}

std::optional<PartialUpload> UploadState::Claim(std::function<void()> stop) {
  MutexLock lock(&mu_);
  if (std::exchange(done_unclaimed_, false)) return PartialUpload();
  if (!claimable() || parts_.copying_dropped()) return std::nullopt;
  state_ = State::kActive;
  stop_ = std::move(stop);
  return std::exchange(partial_, {});
}

void UploadState::Park(PartialUpload partial) {
  parts_.Close();
  bool abandoned = false;
  std::vector<Waiter> on_inactive;
  std::function<void()> stop;  // outlives the lock: it may hold the last reference to the writer
  {
    MutexLock lock(&mu_);
    if (state_ != State::kActive) return;
    abandoned = abandoned_;
    if (!abandoned) {
      state_ = State::kParked;
      partial_ = std::move(partial);
      stop.swap(stop_);
      on_inactive.swap(inactive_waiters_);
    }
  }
  if (abandoned) return FailAbandoned();
  for (Waiter& waiter : on_inactive) waiter();
}

void UploadState::Abandon() {
  {
    MutexLock lock(&mu_);
    abandoned_ = true;
    if (!claimable()) return;
    state_ = State::kActive;  // so that no writer can claim it before the tensor has failed
  }
  FailAbandoned();
}

bool UploadState::abandoned() const {
  MutexLock lock(&mu_);
  return abandoned_;
}

void UploadState::FailAbandoned() {
  tensor_->Finish(absl::FailedPreconditionError(
      absl::StrCat("tensor ", tensor_->handle(),
                   " was promised, and its handle was deleted before its upload finished")));
}

void UploadState::Fail(const absl::Status& error) {
  if (tensor_->done()) return;
  Claim({});  // so that no later writer can claim it
  tensor_->Finish(error);
}

void UploadState::Abort(Waiter on_inactive) {
  {
    MutexLock lock(&mu_);
    if (state_ == State::kActive && stop_) {
      inactive_waiters_.push_back(std::move(on_inactive));
      stop_();
      return;
    }
  }
  on_inactive();
}

void UploadState::ReportReceived(const BufferRef& buffer, int64_t bytes) {
  std::vector<Waiter> due;
  {
    MutexLock lock(&mu_);
    if (state_ != State::kActive) return;
    received_ = {buffer, bytes};
    const auto later =
        std::partition(byte_waiters_.begin(), byte_waiters_.end(),
                       [bytes](const ByteWaiter& waiting) { return waiting.bytes >= bytes; });
    for (auto it = later; it != byte_waiters_.end(); ++it) due.push_back(std::move(it->waiter));
    byte_waiters_.erase(later, byte_waiters_.end());
  }
  for (Waiter& waiter : due) waiter();
}

ReceivedPart UploadState::received() const {
  MutexLock lock(&mu_);
  return received_;
}

void UploadState::WhenReceived(int64_t bytes, Waiter waiter) {
  {
    MutexLock lock(&mu_);
    if (state_ != State::kDone && received_.bytes <= bytes) {
      byte_waiters_.push_back({bytes, std::move(waiter)});
      return;
    }
  }
  waiter();
}

int64_t UploadState::parked_bytes() const {
  MutexLock lock(&mu_);
  return partial_.written_bytes;
}

std::vector<UploadState::Waiter> UploadState::Finish() {
  parts_.Clear();
  std::vector<Waiter> due;
  // These outlive the lock: they may hold the last reference to memory or to the writer.
  std::function<void()> stop;
  PartialUpload partial;
  ReceivedPart received;
  MutexLock lock(&mu_);
  done_unclaimed_ = claimable();
  state_ = State::kDone;
  stop.swap(stop_);
  std::swap(partial, partial_);
  std::swap(received, received_);
  for (ByteWaiter& waiting : byte_waiters_) due.push_back(std::move(waiting.waiter));
  byte_waiters_.clear();
  for (Waiter& waiter : inactive_waiters_) due.push_back(std::move(waiter));
  inactive_waiters_.clear();
  return due;
}

}  // namespace tensord::server
