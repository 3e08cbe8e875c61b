#include "tensord/server/session/tensor.h"
#include "tensord/server/budget.h"

#include <utility>

namespace tensord::server {

TensorRef Tensor::Failed(Handle handle, absl::Status error) {
  auto tensor = Tensor::Make(handle, TensorSpec{}, nullptr);
  tensor->AddHostBytes(HostBytesOf(error));
  tensor->Finish(std::move(error));
  return tensor;
}

TensorRef Tensor::ForUpload(Handle handle, TensorSpec spec, DeviceSlot* slot) {
  constexpr int64_t kCallbackBytes = 128;  // callbacks of the uploading call and of the stream
  auto tensor = Tensor::Make(handle, std::move(spec), slot);
  tensor->upload_ = std::make_unique<UploadState>(tensor.get());
  tensor->AddHostBytes(sizeof(UploadState) + kCallbackBytes);
  return tensor;
}

Mutex& Tensor::mu() const {
  // A tensor takes at least 128 bytes, so the lower bits of its address hardly distinguish it from
  // other tensors.
  constexpr size_t kLocks = 64, kTensorBytes = 128;
  struct alignas(64) Lock {
    Mutex mu;
  };
  static Lock locks[kLocks];
  return locks[reinterpret_cast<uintptr_t>(this) / kTensorBytes % kLocks].mu;
}

void Tensor::Finish(absl::StatusOr<BufferRef> result, CheckListRef checks) {
  std::unique_ptr<std::vector<Waiter>> waiters;
  {
    MutexLock lock(&mu());
    if (done_.load(std::memory_order_relaxed)) return;
    status_ = result.status();
    if (result.ok()) {
      buffer_ = *std::move(result);
      checks_ = Stored(std::move(checks));
    }
    done_.store(true, std::memory_order_release);
    waiters.swap(waiters_);
  }
  // The upload releases its share of the memory before the waiters run. A waiter may be an op that
  // writes to the memory in place, and it does so only if nothing else shares the memory.
  std::vector<Waiter> upload_waiters;
  if (upload_ != nullptr) upload_waiters = upload_->Finish();
  if (waiters != nullptr) {
    for (Waiter& waiter : *waiters) waiter();
  }
  for (Waiter& waiter : upload_waiters) waiter();
}

void Tensor::WhenDone(Waiter waiter) {
  {
    MutexLock lock(&mu());
    if (!done_.load(std::memory_order_relaxed)) {
      if (waiters_ == nullptr) waiters_ = std::make_unique<std::vector<Waiter>>();
      waiters_->push_back(std::move(waiter));
      return;
    }
  }
  waiter();
}

void AbandonUploads(absl::Span<const TensorRef> tensors) {
  for (const TensorRef& tensor : tensors) {
    if (tensor->upload() != nullptr) tensor->upload()->Abandon();
  }
}

}  // namespace tensord::server
