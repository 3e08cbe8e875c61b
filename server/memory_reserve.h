// A reserve for the case that the process runs out of memory.
#pragma once

#include <atomic>
#include <memory>

#include "tensord/server/budget.h"

namespace tensord::server {

// If `operator new` finds no memory, frees a reserve and tries again. From then on the limit
// of `host_bytes` is 0, so the server accepts no new work, but finishes the work that it has
// accepted. Refill() restores the limit when it can allocate the reserve again. Without a reserve,
// `operator new` throws std::bad_alloc, which ends the process. Only the newest object of a process
// has an effect.
class MemoryReserve {
 public:
  static constexpr size_t kBytes = 16 << 20;

  explicit MemoryReserve(BudgetRef host_bytes);
  ~MemoryReserve();
  MemoryReserve(const MemoryReserve&) = delete;
  MemoryReserve& operator=(const MemoryReserve&) = delete;

  // If the reserve was freed, logs it, and tries to allocate it again. Call it at intervals, on one
  // thread at a time.
  void Refill();

 private:
  // The handler of std::set_new_handler(). Allocates nothing.
  static void OnNoMemory();

  const BudgetRef host_bytes_;
  const int64_t limit_;       // of host_bytes_, while there is a reserve
  std::atomic<void*> block_;  // null: freed
  bool logged_ = false;       // that the reserve was freed
};

}  // namespace tensord::server
