#include "tensord/server/session/tensor.h"

#include <utility>

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
  for (Waiter& waiter : waiters) waiter();
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
