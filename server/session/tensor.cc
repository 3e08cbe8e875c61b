#include "tensord/server/session/tensor.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace tensord::server {

TensorRef Tensor::Failed(Handle handle, absl::Status error) {
  auto tensor = std::make_shared<Tensor>(handle, TensorSpec{}, nullptr);
  tensor->Finish(std::move(error));
  return tensor;
}

void Tensor::Finish(absl::StatusOr<BufferRef> result) {
  std::vector<Waiter> waiters;
  {
    MutexLock lock(&mu_);
    if (done_.load(std::memory_order_relaxed)) return;
    status_ = result.status();
    if (result.ok()) buffer_ = *std::move(result);
    done_.store(true, std::memory_order_release);
    waiters.swap(waiters_);
  }
  // Before the waiters run: an op among them may write to the memory if the upload shares it no
  // more.
  std::vector<Waiter> of_upload;
  if (upload_ != nullptr) of_upload = upload_->Finish();
  for (Waiter& waiter : waiters) waiter();
  for (Waiter& waiter : of_upload) waiter();
}

void Tensor::FailGivenUp() {
  Finish(absl::FailedPreconditionError(
      absl::StrCat("tensor ", handle_, " was promised and let go before its upload was done")));
}

void Tensor::ParkUpload(PartialUpload partial) {
  if (upload_ != nullptr && !upload_->Park(std::move(partial))) FailGivenUp();
}

void Tensor::GiveUpUpload() {
  if (upload_ != nullptr && upload_->GiveUp()) FailGivenUp();
}

void Tensor::FailPromise(const absl::Status& error) {
  if (upload_ == nullptr || done()) return;
  upload_->Claim({});  // no writer finds the promise any more
  Finish(error);
}

void Tensor::StopUpload(Waiter resting) {
  if (upload_ == nullptr) return resting();
  upload_->Abort(std::move(resting));
}

void Tensor::WhenReceived(int64_t bytes, Waiter waiter) {
  if (upload_ == nullptr) return WhenDone(std::move(waiter));
  upload_->WhenReceived(bytes, std::move(waiter));
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
