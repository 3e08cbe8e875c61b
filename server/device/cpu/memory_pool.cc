#include "tensord/server/device/cpu/memory_pool.h"

#include <sys/mman.h>

#include <cstdlib>

#include "absl/numeric/bits.h"
#include "tensord/server/device/cpu/host_info.h"

namespace tensord::server::cpu {
namespace {

constexpr int64_t kAlignment = 64;
constexpr int64_t kPage = 4096;
// From here on blocks are mapped by themselves, with huge pages where the system has them.
constexpr int64_t kMappedBytes = 2 << 20;
// From here on a new block is checked against what the system has left: it hands out addresses
// freely, and would end the process when they are used.
constexpr int64_t kCheckedBytes = 16 << 20;

int64_t ClassBytes(int64_t size_bytes) {
  if (size_bytes <= 8 * kAlignment) return (size_bytes + kAlignment - 1) & -kAlignment;
  const int shift = absl::bit_width(static_cast<uint64_t>(size_bytes - 1)) - 4;
  int64_t unit = int64_t{1} << shift;
  if (size_bytes >= kMappedBytes && unit < kPage) unit = kPage;
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

void* MemoryPool::TakeIdle(int64_t class_bytes) {
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
  {
    MutexLock lock(&mu_);
    if (idle_bytes_ + class_bytes <= max_idle_bytes_) {
      idle_[class_bytes].push_back(data);
      idle_bytes_ += class_bytes;
      return;
    }
  }
  ReturnToSystem(data, class_bytes);
}

void MemoryPool::ReleaseIdle() {
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
