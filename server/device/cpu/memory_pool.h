// Host memory in blocks that are kept for reuse, so that a large result doesn't fault its pages in
// anew each time.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "tensord/common/util/mutex.h"

namespace tensord::server::cpu {

// Thread-safe. Blocks are aligned to 64 bytes (large ones to pages) and their sizes rounded up to
// one of eight classes per power of two, so at most an eighth is wasted and a freed block fits the
// next request of about its size. Under AddressSanitizer small blocks go back to the system at
// once, so that it sees who uses them after that.
class MemoryPool {
 public:
  // At most `max_idle_bytes` of freed blocks are kept; past that, blocks go back to the system.
  explicit MemoryPool(int64_t max_idle_bytes);
  ~MemoryPool() { ReleaseIdle(); }
  MemoryPool(const MemoryPool&) = delete;
  MemoryPool& operator=(const MemoryPool&) = delete;

  // Memory of at least `size_bytes` > 0, content unspecified; null where the system has no more,
  // also after every idle block was given back.
  void* Allocate(int64_t size_bytes);

  // `size_bytes` as it was asked for.
  void Free(void* data, int64_t size_bytes);

  void ReleaseIdle();
  int64_t idle_bytes() const;  // of blocks past kSmallBytes

  // Requests up to here are served in a few nanoseconds from lists of their own.
  static constexpr int64_t kSmallBytes = 64 << 10;

 private:
  // Freed blocks of one class, linked through their first bytes. Whoever finds the list in use does
  // without it, so that nobody waits. A cache line of its own: classes don't disturb each other.
  struct alignas(64) SmallList {
    std::atomic<bool> busy{false};
    int64_t room = 0;  // blocks that may be added
    void* first = nullptr;
  };
  static constexpr int kSmallLists = 64;

  // The list of a class's bytes, which are at most kSmallBytes.
  SmallList& ListOf(int64_t class_bytes) const;
  void* TakeIdle(int64_t class_bytes);

  static int64_t SmallIdleBytes(int64_t max_idle_bytes);

  const int64_t max_large_idle_bytes_;
  const std::unique_ptr<SmallList[]> small_;
  mutable Mutex mu_;
  int64_t idle_bytes_ ABSL_GUARDED_BY(mu_) = 0;
  std::map<int64_t, std::vector<void*>> idle_ ABSL_GUARDED_BY(mu_);  // by size class
};

// Memory of a pool that a kernel needs while it runs; it doesn't count against the device's limit.
class Scratch {
 public:
  Scratch() = default;
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
