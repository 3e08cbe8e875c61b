// Host memory in blocks that are kept for reuse. So a large result doesn't cause page faults each
// time. All memory is charged to BufferPages().
#pragma once

#include <atomic>
#include <cstdint>

#include "tensord/common/util/mutex.h"
#include "tensord/server/device/cpu/page_runs.h"
#include "tensord/server/device/slabs.h"

namespace tensord::server::cpu {

// Thread-safe. Blocks of up to Slabs::kMaxBlockBytes come from slabs and are aligned to 64 bytes.
// The limit of idle bytes doesn't count them. Larger blocks are aligned to pages. Their sizes are
// rounded up to one of eight classes per power of two. So a freed block fits the next request of
// about its size, and a block wastes at most an eighth.
class MemoryPool {
 public:
  // Keeps at most `max_idle_bytes` of freed blocks. Returns further blocks to the system.
  explicit MemoryPool(int64_t max_idle_bytes) : max_idle_bytes_(max_idle_bytes) {}
  ~MemoryPool() { ReleaseIdle(); }
  MemoryPool(const MemoryPool&) = delete;
  MemoryPool& operator=(const MemoryPool&) = delete;

  // Returns at least `size_bytes` > 0 bytes. The content is unspecified. If the system has too
  // little memory, or BufferPages() has too little room, returns all idle memory to the system and
  // tries again. If that fails, returns null. Memory that was returned earlier and isn't touched
  // yet doesn't count as free.
  void* Allocate(int64_t size_bytes);

  // `size_bytes` is the argument of Allocate().
  void Free(void* data, int64_t size_bytes);

  // Returns the most bytes that an allocation of `size_bytes` may charge to BufferPages().
  static int64_t PageBytes(int64_t size_bytes);

  // Returns the idle blocks to the system.
  void ReleaseIdle();
  // Returns to the system the blocks that have been idle since the last call.
  void ReleaseUnused();
  int64_t idle_bytes() const { return idle_bytes_.load(std::memory_order_relaxed); }

 private:
  // The classes of sizes above Slabs::kMaxBlockBytes (2^14), up to 2^48: eight per power of two.
  static constexpr int kClasses = 34 * 8;

  // The first bytes of an idle block.
  struct IdleBlock {
    IdleBlock* next;
    int64_t page_bytes;  // charged to BufferPages(); only these may have been touched
  };

  // The idle blocks of a class.
  struct IdleList {
    IdleBlock* first = nullptr;
    int64_t count = 0;
    int64_t min_count = 0;  // the smallest `count` since the last ReleaseUnused()
  };

  // Returns a block of one of the classes of sizes, of which `page_bytes` will be touched.
  void* AllocateBlock(int64_t class_bytes, int64_t page_bytes);
  // Charges or releases pages, so that `block` is charged for `page_bytes`. On failure, changes
  // nothing and returns false.
  static bool SetPageBytes(IdleBlock* block, int64_t page_bytes);
  void* AllocateFromSystem(int64_t class_bytes, int64_t page_bytes);
  void* MapBlock(int64_t class_bytes);
  void ReturnToSystem(void* block, int64_t class_bytes, int64_t page_bytes);
  IdleBlock* TakeIdleLocked(int64_t class_bytes, IdleList* list) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Returns idle blocks to the system: all, or those that ReleaseUnused() releases.
  void Release(bool all);

  const int64_t max_idle_bytes_;
  PageRuns page_runs_;
  Mutex mu_;
  std::atomic<int64_t> idle_bytes_{0};  // written with mu_ held
  IdleList idle_[kClasses] ABSL_GUARDED_BY(mu_);
};

}  // namespace tensord::server::cpu
