#include "tensord/server/rpc/lent_memory.h"

#include <utility>

#include "tensord/common/handover.h"

namespace tensord::server {

struct LentMemory::Loan {
  std::shared_ptr<State> state;
  BufferRef buffer;
};

grpc::Slice LentMemory::Lend(BufferRef buffer, int64_t offset, int64_t bytes) {
  {
    MutexLock lock(&state_->mu);
    ++state_->loans;
  }
  auto* data = static_cast<uint8_t*>(buffer->data()) + offset;
  auto* loan = new Loan{state_, std::move(buffer)};
  HandOver(loan);
  return grpc::Slice(data, bytes, &Return, loan);
}

void LentMemory::Return(void* loan) {
  TakeOver(loan);
  auto* returned = static_cast<Loan*>(loan);
  const std::shared_ptr<State> state = returned->state;
  // With the lock held: Close() must not return, and the device go, before the buffer has.
  MutexLock lock(&state->mu);
  if (state->closed) return;
  delete returned;
  if (--state->loans == 0) state->returned.SignalAll();
}

void LentMemory::Close(std::chrono::steady_clock::time_point deadline) {
  MutexLock lock(&state_->mu);
  while (state_->loans > 0) {
    const auto left = deadline - std::chrono::steady_clock::now();
    if (left <= left.zero()) break;
    state_->returned.WaitFor(&state_->mu, left);
  }
  state_->closed = true;
}

}  // namespace tensord::server
