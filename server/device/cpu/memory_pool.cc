#include "tensord/server/device/cpu/memory_pool.h"

#include <sys/mman.h>

#include <algorithm>
#include <new>

#include "absl/numeric/bits.h"
#include "tensord/server/device/buffer_pages.h"
#include "tensord/server/device/cpu/host_info.h"

namespace tensord::server::cpu {
namespace {

constexpr int64_t kAlignment = 64;
// Blocks of at least this size are mapped separately, with huge pages if the system has them.
constexpr int64_t kMappedBytes = 2 << 20;
constexpr int64_t kHugePageBytes = 2 << 20;
// Blocks of at least this size are checked against the system's free memory. Linux maps more memory
// than it has, and kills the process when the memory is used.
constexpr int64_t kCheckedBytes = 16 << 20;

constexpr int64_t kMaxBytes = int64_t{1} << 48;
constexpr int64_t kMaxSlabBlockBytes = Slabs::kMaxBlockBytes;

int ShiftOf(int64_t size_bytes) {
  return absl::bit_width(static_cast<uint64_t>(size_bytes - 1)) - 4;
}

int64_t ClassBytes(int64_t size_bytes) {
  const int64_t unit = int64_t{1} << ShiftOf(size_bytes);
  return (size_bytes + unit - 1) & -unit;
}

// Returns the number of a class, the smallest of which is 0.
int ClassOf(int64_t class_bytes) {
  static const int smallest_shift = ShiftOf(kMaxSlabBlockBytes + 1);
  const int shift = std::max(0, ShiftOf(class_bytes));
  return (shift - smallest_shift) * 8 + static_cast<int>(class_bytes >> shift) - 9;
}

int64_t RoundUp(int64_t bytes, int64_t unit) { return (bytes + unit - 1) / unit * unit; }

}  // namespace

// A small block may need a new slab. A block of a run takes all its pages. A mapped block takes the
// pages that its user may touch, rounded up to huge pages.
int64_t MemoryPool::PageBytes(int64_t size_bytes) {
  if (size_bytes <= kMaxSlabBlockBytes) return Slabs::kSlabBytes;
  const int64_t class_bytes = ClassBytes(size_bytes);
  if (class_bytes < kMappedBytes) return RoundUp(class_bytes, PageRuns::kPageBytes);
  return std::min(class_bytes, RoundUp(size_bytes, kHugePageBytes));
}

namespace {

// The bytes of all blocks of at least kMappedBytes that Allocate() has returned, in all pools.
std::atomic<int64_t> large_bytes{0};

// Returns a lower bound of the bytes of blocks that Allocate() has returned and that were never
// touched. They still count as free memory of the system.
int64_t UntouchedBytes() {
  return std::max<int64_t>(0, large_bytes.load(std::memory_order_relaxed) - HostTouchedMemory());
}

}  // namespace

void* MemoryPool::MapBlock(int64_t class_bytes) {
  if (class_bytes < kMappedBytes) return page_runs_.Allocate(PageBytes(class_bytes));
  if (class_bytes >= kCheckedBytes && class_bytes > HostAvailableMemory() - UntouchedBytes()) {
    return nullptr;
  }
  void* data =
      mmap(nullptr, class_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) return nullptr;
  madvise(data, class_bytes, MADV_HUGEPAGE);
  return data;
}

void* MemoryPool::AllocateFromSystem(int64_t class_bytes, int64_t page_bytes) {
  if (BufferPages().TryCharge(page_bytes) != nullptr) return nullptr;
  void* const data = MapBlock(class_bytes);
  if (data == nullptr) BufferPages().Return(page_bytes);
  return data;
}

void MemoryPool::ReturnToSystem(void* block, int64_t class_bytes, int64_t page_bytes) {
  if (class_bytes < kMappedBytes) {
    page_runs_.Free(block, page_bytes);
  } else {
    munmap(block, class_bytes);
  }
  BufferPages().Return(page_bytes);
}

MemoryPool::IdleBlock* MemoryPool::TakeIdleLocked(int64_t class_bytes, IdleList* list) {
  IdleBlock* const block = list->first;
  if (block == nullptr) return nullptr;
  list->first = block->next;
  list->min_count = std::min(list->min_count, --list->count);
  idle_bytes_.store(idle_bytes() - class_bytes, std::memory_order_relaxed);
  return block;
}

bool MemoryPool::SetPageBytes(IdleBlock* block, int64_t page_bytes) {
  const int64_t more = page_bytes - block->page_bytes;
  if (more > 0) return BufferPages().TryCharge(more) == nullptr;
  if (more == 0) return true;
  if (madvise(reinterpret_cast<char*>(block) + page_bytes, -more, MADV_DONTNEED) != 0) return false;
  BufferPages().Return(-more);
  return true;
}

void* MemoryPool::Allocate(int64_t size_bytes) {
  if (size_bytes <= kMaxSlabBlockBytes) {
    const int64_t block_bytes = RoundUp(size_bytes, kAlignment);
    if (void* data = Slabs::Allocate(block_bytes, Slabs::Use::kBuffers)) return data;
    ReleaseIdle();
    return Slabs::Allocate(block_bytes, Slabs::Use::kBuffers);
  }
  if (size_bytes > kMaxBytes) return nullptr;
  void* const data = AllocateBlock(ClassBytes(size_bytes), PageBytes(size_bytes));
  if (data != nullptr && size_bytes >= kMappedBytes) {
    large_bytes.fetch_add(size_bytes, std::memory_order_relaxed);
  }
  return data;
}

void* MemoryPool::AllocateBlock(int64_t class_bytes, int64_t page_bytes) {
  IdleBlock* idle = nullptr;
  {
    MutexLock lock(&mu_);
    idle = TakeIdleLocked(class_bytes, &idle_[ClassOf(class_bytes)]);
  }
  if (idle != nullptr) {
    if (SetPageBytes(idle, page_bytes)) return idle;
    ReturnToSystem(idle, class_bytes, idle->page_bytes);
  }
  if (void* data = AllocateFromSystem(class_bytes, page_bytes)) return data;
  ReleaseIdle();
  return AllocateFromSystem(class_bytes, page_bytes);
}

void MemoryPool::Free(void* data, int64_t size_bytes) {
  if (size_bytes <= kMaxSlabBlockBytes) return Slabs::Free(data);
  if (size_bytes >= kMappedBytes) large_bytes.fetch_sub(size_bytes, std::memory_order_relaxed);
  const int64_t class_bytes = ClassBytes(size_bytes), page_bytes = PageBytes(size_bytes);
  {
    MutexLock lock(&mu_);
    if (idle_bytes() + class_bytes <= max_idle_bytes_) {
      IdleList& list = idle_[ClassOf(class_bytes)];
      list.first = new (data) IdleBlock{.next = list.first, .page_bytes = page_bytes};
      ++list.count;
      idle_bytes_.store(idle_bytes() + class_bytes, std::memory_order_relaxed);
      return;
    }
  }
  ReturnToSystem(data, class_bytes, page_bytes);
}

void MemoryPool::Release(bool all) {
  for (int i = 0; i < kClasses; ++i) {
    const int64_t class_bytes = int64_t{i % 8 + 9} << (i / 8 + ShiftOf(kMaxSlabBlockBytes + 1));
    IdleBlock* released = nullptr;
    {
      MutexLock lock(&mu_);
      IdleList& list = idle_[i];
      for (int64_t left = all ? list.count : list.min_count; left > 0; --left) {
        IdleBlock* const block = TakeIdleLocked(class_bytes, &list);
        block->next = released;
        released = block;
      }
      list.min_count = list.count;
    }
    while (released != nullptr) {
      IdleBlock* const block = released;
      released = block->next;
      ReturnToSystem(block, class_bytes, block->page_bytes);
    }
  }
}

void MemoryPool::ReleaseIdle() {
  Release(/*all=*/true);
  Slabs::ReleaseIdle();
}
void MemoryPool::ReleaseUnused() { Release(/*all=*/false); }

}  // namespace tensord::server::cpu
