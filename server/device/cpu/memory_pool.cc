#include "tensord/server/device/cpu/memory_pool.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "absl/numeric/bits.h"
#include "tensord/server/device/cpu/host_info.h"

namespace tensord::server::cpu {
namespace {

constexpr int64_t kAlignment = 64;
// Blocks of at least this size are mapped separately, with huge pages if the system has them.
constexpr int64_t kMappedBytes = 2 << 20;
// Blocks of at least this size are checked against the system's free memory. Linux maps more memory
// than it has, and kills the process when the memory is used.
constexpr int64_t kCheckedBytes = 16 << 20;
// The maximum that each class of small blocks keeps.
constexpr int64_t kSmallIdleBytes = 512 << 10;

#if defined(__SANITIZE_ADDRESS__)
constexpr bool kKeepSmall = false;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
constexpr bool kKeepSmall = false;
#else
constexpr bool kKeepSmall = true;
#endif
#else
constexpr bool kKeepSmall = true;
#endif

int ShiftOf(int64_t size_bytes) {
  return absl::bit_width(static_cast<uint64_t>(size_bytes - 1)) - 4;
}

int64_t ClassBytes(int64_t size_bytes) {
  if (size_bytes <= 8 * kAlignment) return (size_bytes + kAlignment - 1) & -kAlignment;
  const int64_t unit = int64_t{1} << ShiftOf(size_bytes);
  return (size_bytes + unit - 1) & -unit;
}

void* AllocateFromSystem(int64_t class_bytes) {
  if (class_bytes < kMappedBytes) return std::aligned_alloc(kAlignment, class_bytes);
  if (class_bytes >= kCheckedBytes && class_bytes > HostAvailableMemory()) return nullptr;
  void* data =
      mmap(nullptr, class_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) return nullptr;
  madvise(data, class_bytes, MADV_HUGEPAGE);
  return data;
}

void ReturnToSystem(void* data, int64_t class_bytes) {
  if (class_bytes < kMappedBytes) {
    std::free(data);
  } else {
    munmap(data, class_bytes);
  }
}

}  // namespace

// All classes of small blocks together keep at most a quarter of `max_idle_bytes`.
int64_t MemoryPool::SmallIdleBytes(int64_t max_idle_bytes) {
  return std::min(kSmallIdleBytes, max_idle_bytes / 4 / kSmallLists);
}

MemoryPool::MemoryPool(int64_t max_idle_bytes)
    : max_large_idle_bytes_(max_idle_bytes - kSmallLists * SmallIdleBytes(max_idle_bytes)),
      small_(std::make_unique<SmallList[]>(kSmallLists)) {
  const int64_t class_idle_bytes = SmallIdleBytes(max_idle_bytes);
  for (int64_t bytes = kAlignment; bytes <= kSmallBytes; bytes = ClassBytes(bytes + 1)) {
    ListOf(bytes).room = class_idle_bytes / bytes;
  }
}

MemoryPool::SmallList& MemoryPool::ListOf(int64_t class_bytes) const {
  // The first eight classes are 64, 128, …, 512. Then each power of two has eight classes.
  if (class_bytes <= 8 * kAlignment) return small_[class_bytes / kAlignment - 1];
  const int shift = ShiftOf(class_bytes);
  return small_[(shift - 6) * 8 + (class_bytes >> shift) - 1];
}

void* MemoryPool::TakeIdle(int64_t class_bytes) {
  if (class_bytes <= kSmallBytes) {
    SmallList& list = ListOf(class_bytes);
    if (!kKeepSmall || list.busy.exchange(true, std::memory_order_acquire)) return nullptr;
    void* data = list.first;
    if (data != nullptr) {
      list.first = *static_cast<void**>(data);
      ++list.room;
    }
    list.busy.store(false, std::memory_order_release);
    return data;
  }
  MutexLock lock(&mu_);
  const auto it = idle_.find(class_bytes);
  if (it == idle_.end() || it->second.empty()) return nullptr;
  void* data = it->second.back();
  it->second.pop_back();
  idle_bytes_ -= class_bytes;
  return data;
}

void* MemoryPool::Allocate(int64_t size_bytes) {
  const int64_t class_bytes = ClassBytes(size_bytes);
  if (void* data = TakeIdle(class_bytes)) return data;
  if (void* data = AllocateFromSystem(class_bytes)) return data;
  ReleaseIdle();
  return AllocateFromSystem(class_bytes);
}

void MemoryPool::Free(void* data, int64_t size_bytes) {
  const int64_t class_bytes = ClassBytes(size_bytes);
  if (class_bytes > kSmallBytes) {
    MutexLock lock(&mu_);
    if (idle_bytes_ + class_bytes <= max_large_idle_bytes_) {
      idle_[class_bytes].push_back(data);
      idle_bytes_ += class_bytes;
      return;
    }
  } else if (SmallList& list = ListOf(class_bytes);
             kKeepSmall && !list.busy.exchange(true, std::memory_order_acquire)) {
    const bool keep = list.room > 0;
    if (keep) {
      *static_cast<void**>(data) = list.first;
      list.first = data;
      --list.room;
    }
    list.busy.store(false, std::memory_order_release);
    if (keep) return;
  }
  ReturnToSystem(data, class_bytes);
}

void MemoryPool::ReleaseIdle() {
  for (int i = 0; i < kSmallLists; ++i) {
    // Skips a list that another thread uses, because its blocks are small.
    if (small_[i].busy.exchange(true, std::memory_order_acquire)) continue;
    void* block = std::exchange(small_[i].first, nullptr);
    while (block != nullptr) {
      void* next = *static_cast<void**>(block);
      std::free(block);
      ++small_[i].room;
      block = next;
    }
    small_[i].busy.store(false, std::memory_order_release);
  }
  std::map<int64_t, std::vector<void*>> released;
  {
    MutexLock lock(&mu_);
    released.swap(idle_);
    idle_bytes_ = 0;
  }
  for (const auto& [class_bytes, blocks] : released) {
    for (void* data : blocks) ReturnToSystem(data, class_bytes);
  }
}

int64_t MemoryPool::idle_bytes() const {
  MutexLock lock(&mu_);
  return idle_bytes_;
}

}  // namespace tensord::server::cpu
