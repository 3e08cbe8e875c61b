#include "tensord/server/rpc/bulk/zero_copy_slices.h"

#include <utility>

#include "tensord/common/util/tsan_annotations.h"

namespace tensord::server {

// The objects that a slice keeps alive.
struct ZeroCopySlices::Reference {
  std::shared_ptr<State> state;
  BufferRef buffer;
};

grpc::Slice ZeroCopySlices::Make(BufferRef buffer, int64_t offset, int64_t bytes) {
  {
    MutexLock lock(&state_->mu);
    ++state_->slices;
  }
  auto* data = static_cast<uint8_t*>(buffer->data()) + offset;
  auto* reference = new Reference{state_, std::move(buffer)};
  TsanRelease(reference);
  return grpc::Slice(data, bytes, &Release, reference);
}

void ZeroCopySlices::Release(void* reference) {
  TsanAcquire(reference);
  auto* released = static_cast<Reference*>(reference);
  const std::shared_ptr<State> state = released->state;
  // The lock is held so that Close() doesn't return, and the device isn't destroyed, before the
  // buffer is freed.
  MutexLock lock(&state->mu);
  if (state->closed) return;
  delete released;
  if (--state->slices == 0) state->all_released.SignalAll();
}

void ZeroCopySlices::Close(std::chrono::steady_clock::time_point deadline) {
  MutexLock lock(&state_->mu);
  while (state_->slices > 0) {
    const auto left = deadline - std::chrono::steady_clock::now();
    if (left <= left.zero()) break;
    state_->all_released.WaitFor(&state_->mu, left);
  }
  state_->closed = true;
}

}  // namespace tensord::server
