// Host memory in blocks that are kept for reuse. So a large result doesn't cause page faults each
// time.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "tensord/common/util/mutex.h"

namespace tensord::server::cpu {

// Thread-safe. Blocks are aligned to 64 bytes, and from 2 MiB on to pages. Sizes up to 512 bytes
// are rounded up to a multiple of 64, larger ones to one of eight classes per power of two. So a
// freed block fits the next request of about its size, and a larger block wastes at most an eighth.
// Under AddressSanitizer small blocks are returned to the system at once, so that it detects later
// uses.
class MemoryPool {
 public:
  // Keeps at most `max_idle_bytes` of freed blocks. Returns further blocks to the system.
  explicit MemoryPool(int64_t max_idle_bytes);
  ~MemoryPool() { ReleaseIdle(); }
  MemoryPool(const MemoryPool&) = delete;
  MemoryPool& operator=(const MemoryPool&) = delete;

  // Returns at least `size_bytes` > 0 bytes. The content is unspecified. If the system has too
  // little memory, returns all idle blocks to the system and tries again. If that fails, returns
  // null.
  void* Allocate(int64_t size_bytes);

  // `size_bytes` is the argument of Allocate().
  void Free(void* data, int64_t size_bytes);

  // Returns the idle blocks to the system. May skip small blocks that another thread accesses.
  void ReleaseIdle();
  int64_t idle_bytes() const;  // of blocks larger than kSmallBytes

  // Lists of small blocks serve requests up to this size in a few nanoseconds.
  static constexpr int64_t kSmallBytes = 64 << 10;

 private:
  // Freed blocks of one class, linked through their first bytes. A thread that finds the list busy
  // doesn't wait: it uses the system instead. Each list has its own cache line, so that threads
  // that use different classes don't slow each other down.
  struct alignas(64) SmallList {
    std::atomic<bool> busy{false};
    int64_t room = 0;  // the number of blocks that may be added
    void* first = nullptr;
  };
  static constexpr int kSmallLists = 64;

  // Returns the list of a class. `class_bytes` is at most kSmallBytes.
  SmallList& ListOf(int64_t class_bytes) const;
  // Removes an idle block from its list and returns it. Null if there is none.
  void* TakeIdle(int64_t class_bytes);

  // Returns how many bytes each class of small blocks may keep.
  static int64_t SmallIdleBytes(int64_t max_idle_bytes);

  const int64_t max_large_idle_bytes_;
  const std::unique_ptr<SmallList[]> small_;
  mutable Mutex mu_;
  int64_t idle_bytes_ ABSL_GUARDED_BY(mu_) = 0;
  std::map<int64_t, std::vector<void*>> idle_ ABSL_GUARDED_BY(mu_);  // by size class
};

// Memory of a pool that a kernel needs while it runs. It doesn't count against the device's limit.
class Scratch {
 public:
  Scratch() = default;
  // If the system has too little memory, data() is null.
  Scratch(MemoryPool* pool, int64_t size_bytes)
      : pool_(pool), size_bytes_(size_bytes), data_(pool->Allocate(size_bytes)) {}
  ~Scratch() {
    if (data_ != nullptr) pool_->Free(data_, size_bytes_);
  }
  Scratch(Scratch&& other) noexcept { *this = std::move(other); }
  Scratch& operator=(Scratch&& other) noexcept {
    std::swap(pool_, other.pool_);
    std::swap(size_bytes_, other.size_bytes_);
    std::swap(data_, other.data_);
    return *this;
  }

  void* data() const { return data_; }
  template <typename T>
  T* As() const {
    return static_cast<T*>(data_);
  }

 private:
  MemoryPool* pool_ = nullptr;
  int64_t size_bytes_ = 0;
  void* data_ = nullptr;
};

}  // namespace tensord::server::cpu
