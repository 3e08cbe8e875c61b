#include "tensord/server/memory_reserve.h"

#include <sys/mman.h>

#include <new>
#include <utility>

#include "tensord/server/log.h"

namespace tensord::server {
namespace {

std::atomic<MemoryReserve*> newest = nullptr;

// Returns null if there is no memory. The pages are touched, so that they are in use.
void* MapBlock() {
  void* const block = mmap(nullptr, MemoryReserve::kBytes, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  return block == MAP_FAILED ? nullptr : block;
}

}  // namespace

MemoryReserve::MemoryReserve(BudgetRef host_bytes)
    : host_bytes_(std::move(host_bytes)), limit_(host_bytes_->limit()), block_(MapBlock()) {
  newest = this;
  std::set_new_handler(&OnNoMemory);
}

MemoryReserve::~MemoryReserve() {
  MemoryReserve* self = this;
  if (newest.compare_exchange_strong(self, nullptr)) std::set_new_handler(nullptr);
  if (void* const block = block_.exchange(nullptr)) munmap(block, kBytes);
}

void MemoryReserve::OnNoMemory() {
  MemoryReserve* const reserve = newest;
  void* const block = reserve == nullptr ? nullptr : reserve->block_.exchange(nullptr);
  if (block == nullptr) throw std::bad_alloc();
  reserve->host_bytes_->SetLimit(0);
  munmap(block, kBytes);
}

void MemoryReserve::Refill() {
  if (block_ != nullptr) return;
  if (!std::exchange(logged_, true)) {
    LogLine(
        "the process has run out of memory and refuses new work until memory is free; give the "
        "daemon more memory, or lower the limits (server/LIMITS.md)");
  }
  void* const block = MapBlock();
  if (block == nullptr) return;
  block_ = block;
  host_bytes_->SetLimit(limit_);
  logged_ = false;
  LogLine("memory is free again; the server accepts new work");
}

}  // namespace tensord::server
