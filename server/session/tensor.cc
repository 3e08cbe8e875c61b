#include "tensord/server/session/tensor.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace tensord::server {

TensorRef Tensor::Failed(Handle handle, absl::Status error) {
  auto tensor = std::make_shared<Tensor>(handle, TensorSpec{}, nullptr);
  tensor->Finish(std::move(error));
  return tensor;
}

Tensor::~Tensor() {
  MutexLock lock(&mu_);
  if (upload_ != nullptr && upload_->stop) upload_->stop();
}

void Tensor::Finish(absl::StatusOr<BufferRef> result) {
  std::vector<Waiter> waiters;
  std::unique_ptr<UploadState> upload;
  std::unique_ptr<std::vector<ByteWaiter>> byte_waiters;
  {
    MutexLock lock(&mu_);
    if (done_.load(std::memory_order_relaxed)) return;
    status_ = result.status();
    if (result.ok()) buffer_ = *std::move(result);
    done_.store(true, std::memory_order_release);
    waiters.swap(waiters_);
    upload = std::move(upload_);
    byte_waiters = std::move(byte_waiters_);
  }
  if (upload != nullptr) upload->received = {};  // whoever runs now may want the memory
  for (Waiter& waiter : waiters) waiter();
  if (byte_waiters != nullptr) {
    for (ByteWaiter& waiting : *byte_waiters) waiting.waiter();
  }
  if (upload == nullptr) return;
  for (Waiter& waiter : upload->waiters) waiter();
}

Tensor::PartialUpload Tensor::TakePartialUpload(std::function<void()> stop) {
  MutexLock lock(&mu_);
  if (done_.load(std::memory_order_relaxed)) return {};
  if (upload_ == nullptr) upload_ = std::make_unique<UploadState>();
  upload_->stop = std::move(stop);
  return std::exchange(upload_->partial, {});
}

void Tensor::ParkUpload(PartialUpload partial) {
  std::vector<Waiter> waiters;
  bool given_up = false;
  {
    MutexLock lock(&mu_);
    if (done_.load(std::memory_order_relaxed)) return;
    given_up = given_up_;
    if (!given_up) {
      upload_->partial = std::move(partial);
      upload_->stop = nullptr;
      waiters.swap(upload_->waiters);
      AnnounceUpload();
    }
  }
  if (given_up) Finish(GivenUp());
  for (Waiter& waiter : waiters) waiter();
}

absl::Status Tensor::GivenUp() const {
  return absl::FailedPreconditionError(
      absl::StrCat("tensor ", handle_, " was promised and let go before its upload was done"));
}

void Tensor::GiveUpUpload() {
  if (done()) return;
  {
    MutexLock lock(&mu_);
    if (!ClaimUpload()) {
      given_up_ = true;
      return;
    }
  }
  Finish(GivenUp());
}

void Tensor::StopUpload(Waiter resting) {
  {
    MutexLock lock(&mu_);
    if (!done_.load(std::memory_order_relaxed) && upload_ != nullptr && upload_->stop) {
      upload_->waiters.push_back(std::move(resting));
      upload_->stop();
      return;
    }
  }
  resting();
}

void Tensor::Received(const BufferRef& buffer, int64_t bytes) {
  std::vector<Waiter> due;
  {
    MutexLock lock(&mu_);
    if (done_.load(std::memory_order_relaxed) || upload_ == nullptr) return;
    upload_->received = {buffer, bytes};
    if (byte_waiters_ == nullptr) return;
    const auto later =
        std::partition(byte_waiters_->begin(), byte_waiters_->end(),
                       [bytes](const ByteWaiter& waiting) { return waiting.bytes >= bytes; });
    for (auto it = later; it != byte_waiters_->end(); ++it) due.push_back(std::move(it->waiter));
    byte_waiters_->erase(later, byte_waiters_->end());
  }
  for (Waiter& waiter : due) waiter();
}

Tensor::ReceivedPart Tensor::received() {
  MutexLock lock(&mu_);
  return upload_ == nullptr ? ReceivedPart() : upload_->received;
}

void Tensor::WhenReceived(int64_t bytes, Waiter waiter) {
  {
    MutexLock lock(&mu_);
    const bool there = upload_ != nullptr && upload_->received.bytes > bytes;
    if (!there && !done_.load(std::memory_order_relaxed)) {
      if (byte_waiters_ == nullptr) byte_waiters_ = std::make_unique<std::vector<ByteWaiter>>();
      byte_waiters_->push_back({bytes, std::move(waiter)});
      return;
    }
  }
  waiter();
}

bool Tensor::FailPromise(const absl::Status& error) {
  {
    MutexLock lock(&mu_);
    if (done_.load(std::memory_order_relaxed)) return false;
    if (!ClaimUpload() && upload_ == nullptr) return false;
  }
  Finish(error);
  return true;
}

int64_t Tensor::parked_bytes() {
  MutexLock lock(&mu_);
  return upload_ == nullptr ? 0 : upload_->partial.written_bytes;
}

void Tensor::WhenDone(Waiter waiter) {
  {
    MutexLock lock(&mu_);
    if (!done_.load(std::memory_order_relaxed)) {
      waiters_.push_back(std::move(waiter));
      return;
    }
  }
  waiter();
}

}  // namespace tensord::server
