#include "tensord/server/session/tensor.h"

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
  {
    MutexLock lock(&mu_);
    if (done_.load(std::memory_order_relaxed)) return;
    status_ = result.status();
    if (result.ok()) buffer_ = *std::move(result);
    done_.store(true, std::memory_order_release);
    waiters.swap(waiters_);
    upload = std::move(upload_);
  }
  for (Waiter& waiter : waiters) waiter();
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
