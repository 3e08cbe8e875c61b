#include "tensord/server/rpc/lent_memory.h"

#include <utility>

#include "tensord/common/handover.h"

namespace tensord::server {

struct LentMemory::Loan {
  LentMemory* owner;
  BufferRef buffer;
};

grpc::Slice LentMemory::Lend(BufferRef buffer, int64_t offset, int64_t bytes) {
  {
    MutexLock lock(&mu_);
    ++loans_;
  }
  auto* data = static_cast<uint8_t*>(buffer->data()) + offset;
  auto* loan = new Loan{this, std::move(buffer)};
  HandOver(loan);
  return grpc::Slice(data, bytes, &Return, loan);
}

void LentMemory::Return(void* loan) {
  TakeOver(loan);
  auto* returned = static_cast<Loan*>(loan);
  LentMemory* const owner = returned->owner;
  delete returned;
  MutexLock lock(&owner->mu_);
  if (--owner->loans_ == 0) owner->returned_.SignalAll();
}

void LentMemory::AwaitAll() {
  MutexLock lock(&mu_);
  while (loans_ > 0) returned_.Wait(&mu_);
}

}  // namespace tensord::server
