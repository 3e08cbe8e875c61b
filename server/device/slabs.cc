#include "tensord/server/device/slabs.h"

#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <vector>

#include "absl/numeric/bits.h"
#include "tensord/common/util/mutex.h"
#include "tensord/server/device/buffer_pages.h"

namespace tensord::server {

#if defined(TENSORD_ADDRESS_SANITIZER)

void* Slabs::Allocate(int64_t bytes, Use /*use*/) {
  return std::aligned_alloc(64, (bytes + 63) & -64);
}
void Slabs::Free(void* block) { std::free(block); }
void Slabs::ReleaseIdle() {}
void Slabs::ReleaseUnused() {}

#else

namespace {

constexpr int64_t kSlabBytes = Slabs::kSlabBytes;
// The number of slabs for which address space is requested at once. If the system refuses, address
// space for one slab is requested.
constexpr int64_t kSlabsPerRegion = 256;
constexpr int64_t kHeaderBytes = 64;

constexpr int kFineClasses = 16;  // multiples of 32, up to 512
constexpr int kSizes = kFineClasses + 5 * 8;
// Each use has its own classes: first those of kObjects, then those of kBuffers.
constexpr int kClasses = 2 * kSizes;

bool IsOfBuffers(int size_class) { return size_class >= kSizes; }

int SizeClassOf(int64_t bytes) {
  if (bytes <= kFineClasses * 32) return static_cast<int>((bytes - 1) / 32);
  const int shift = absl::bit_width(static_cast<uint64_t>(bytes - 1)) - 4;
  return kFineClasses + (shift - 6) * 8 + static_cast<int>((bytes - 1) >> shift) - 8;
}

int ClassOf(int64_t bytes, Slabs::Use use) {
  return SizeClassOf(bytes) + (use == Slabs::Use::kBuffers ? kSizes : 0);
}

constexpr int64_t BytesOf(int size_class) {
  size_class %= kSizes;
  if (size_class < kFineClasses) return (size_class + 1) * 32;
  const int coarse = size_class - kFineClasses;
  return int64_t{coarse % 8 + 9} << (coarse / 8 + 6);
}
static_assert(BytesOf(kClasses - 1) == Slabs::kMaxBlockBytes);

// The number of free blocks of each class that a thread keeps at most. It exchanges half of them
// with the class's slabs at once.
constexpr std::array<int, kClasses> kMaxThreadCacheBlocks = [] {
  std::array<int, kClasses> counts{};
  for (int i = 0; i < kClasses; ++i) {
    counts[i] = static_cast<int>(std::clamp<int64_t>((16 << 10) / BytesOf(i), 2, 64));
  }
  return counts;
}();

// The first part of a slab. Its blocks follow. The lock of its class guards it.
struct Slab {
  int size_class;
  int capacity;           // in blocks
  int used;               // allocated blocks, those in thread caches included
  int num_initialized;    // the first blocks, which were allocated at least once
  void* free;             // freed blocks, linked through their first bytes
  Slab *previous, *next;  // in the class's list of slabs with free blocks
};
static_assert(sizeof(Slab) <= kHeaderBytes);

Slab* SlabOf(void* block) {
  return reinterpret_cast<Slab*>(reinterpret_cast<uintptr_t>(block) & -kSlabBytes);
}

void*& NextOf(void* block) { return *static_cast<void**>(block); }

// The slabs that contain no used block. Those in `resident_` are charged to BufferPages(), because
// buffers may use them next. Thread-safe.
class UnusedSlabs {
 public:
  // Returns a slab with any content. If the system has too little memory, or BufferPages() has
  // too little room, returns null.
  Slab* Take(bool for_buffers) {
    MutexLock lock(&mu_);
    if (resident_.empty() && released_.empty() && !AddRegion(kSlabsPerRegion) && !AddRegion(1)) {
      return nullptr;
    }
    std::vector<Slab*>& from = resident_.empty() ? released_ : resident_;
    const bool is_charged = &from == &resident_;
    if (is_charged && !for_buffers) BufferPages().Return(kSlabBytes);
    if (!is_charged && for_buffers && BufferPages().TryCharge(kSlabBytes) != nullptr)
      return nullptr;
    Slab* const slab = from.back();
    from.pop_back();
    min_resident_ = std::min(min_resident_, resident_.size());
    return slab;
  }

  void Return(Slab* slab, bool of_buffers) {
    if (!of_buffers) BufferPages().ChargePastLimit(kSlabBytes);
    MutexLock lock(&mu_);
    resident_.push_back(slab);
  }

  // Releases all of them, or those that were unused since the last call.
  void Release(bool all) {
    std::vector<Slab*> unused;
    {
      MutexLock lock(&mu_);
      // Slabs are taken from the end, so those at the front are the ones that weren't used.
      const auto end =
          all ? resident_.end() : resident_.begin() + static_cast<int64_t>(min_resident_);
      unused.assign(resident_.begin(), end);
      resident_.erase(resident_.begin(), end);
      min_resident_ = resident_.size();
    }
    for (Slab* slab : unused) madvise(slab, kSlabBytes, MADV_DONTNEED);
    BufferPages().Return(static_cast<int64_t>(unused.size()) * kSlabBytes);
    MutexLock lock(&mu_);
    released_.insert(released_.end(), unused.begin(), unused.end());
  }

 private:
  bool AddRegion(int64_t slabs) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    // One slab more, because the address isn't aligned.
    void* const region = mmap(nullptr, (slabs + 1) * kSlabBytes, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (region == MAP_FAILED) return false;
    // With huge pages, slabs would take more memory than BufferPages() counts.
    madvise(region, (slabs + 1) * kSlabBytes, MADV_NOHUGEPAGE);
    total_ += slabs;
    resident_.reserve(total_);
    released_.reserve(total_);
    const uintptr_t begin = (reinterpret_cast<uintptr_t>(region) + kSlabBytes - 1) & -kSlabBytes;
    // Take() begins at the end of the list, so the slab with the lowest address is the last one.
    for (int64_t i = slabs; i-- > 0;) {
      released_.push_back(reinterpret_cast<Slab*>(begin + i * kSlabBytes));
    }
    return true;
  }

  Mutex mu_;
  int64_t total_ ABSL_GUARDED_BY(mu_) = 0;  // all slabs; each list has memory for so many
  std::vector<Slab*> resident_ ABSL_GUARDED_BY(mu_);
  // The smallest resident_.size() since the last Release().
  size_t min_resident_ ABSL_GUARDED_BY(mu_) = 0;
  std::vector<Slab*> released_ ABSL_GUARDED_BY(mu_);  // the system has their memory
};

UnusedSlabs& Unused() {
  static auto* const slabs = new UnusedSlabs;
  return *slabs;
}

// The slabs of a size class that contain used blocks. Each class has its own cache line.
class alignas(64) SizeClass {
 public:
  // Returns up to `count` blocks, linked, and sets `count` to their number. Returns null if the
  // system has too little memory.
  void* Take(int size_class, int* count) {
    MutexLock lock(&mu_);
    void* blocks = nullptr;
    int taken = 0;
    for (; taken < *count; ++taken) {
      if (partial_slabs_ == nullptr && !AddSlab(size_class)) break;
      void* const block = TakeFrom(partial_slabs_);
      NextOf(block) = blocks;
      blocks = block;
    }
    *count = taken;
    return blocks;
  }

  // Frees the first `count` of the linked blocks, and returns the block after them.
  void* Return(void* blocks, int count) {
    MutexLock lock(&mu_);
    for (; count > 0; --count) {
      void* const block = blocks;
      blocks = NextOf(block);
      ReturnTo(SlabOf(block), block);
    }
    return blocks;
  }

 private:
  bool AddSlab(int size_class) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    Slab* const slab = Unused().Take(IsOfBuffers(size_class));
    if (slab == nullptr) return false;
    const int64_t capacity = (kSlabBytes - kHeaderBytes) / BytesOf(size_class);
    *slab = {.size_class = size_class, .capacity = static_cast<int>(capacity)};
    Link(slab);
    return true;
  }

  void* TakeFrom(Slab* slab) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    void* block = slab->free;
    if (block != nullptr) {
      slab->free = NextOf(block);
    } else {
      block = reinterpret_cast<char*>(slab) + kHeaderBytes +
              slab->num_initialized++ * BytesOf(slab->size_class);
    }
    if (++slab->used == slab->capacity) Unlink(slab);
    return block;
  }

  void ReturnTo(Slab* slab, void* block) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    if (slab->used == slab->capacity) Link(slab);
    NextOf(block) = slab->free;
    slab->free = block;
    if (--slab->used > 0) return;
    Unlink(slab);
    Unused().Return(slab, IsOfBuffers(slab->size_class));
  }

  void Link(Slab* slab) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    slab->previous = nullptr;
    slab->next = partial_slabs_;
    if (partial_slabs_ != nullptr) partial_slabs_->previous = slab;
    partial_slabs_ = slab;
  }
  void Unlink(Slab* slab) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    (slab->previous != nullptr ? slab->previous->next : partial_slabs_) = slab->next;
    if (slab->next != nullptr) slab->next->previous = slab->previous;
  }

  Mutex mu_;
  Slab* partial_slabs_ ABSL_GUARDED_BY(mu_) = nullptr;
};

SizeClass size_classes[kClasses];

// The free blocks that a thread keeps. ThreadCache has no destructor, so that an access needn't
// check whether the object exists.
struct ThreadCache {
  void* first;  // linked through their first bytes
  int count;
};
thread_local ThreadCache thread_cache[kClasses];

// Returns the thread's blocks when the thread ends.
struct ThreadEnd {
  ~ThreadEnd() {
    for (int i = 0; i < kClasses; ++i) {
      size_classes[i].Return(thread_cache[i].first, thread_cache[i].count);
      thread_cache[i] = {};
    }
  }
};

void ReturnBlocksAtThreadEnd() { static thread_local const ThreadEnd thread_end; }

void* Refill(int size_class) {
  ReturnBlocksAtThreadEnd();
  ThreadCache& own = thread_cache[size_class];
  own.count = kMaxThreadCacheBlocks[size_class] / 2;
  own.first = size_classes[size_class].Take(size_class, &own.count);
  void* const block = own.first;
  if (block == nullptr) return nullptr;
  own.first = NextOf(block);
  --own.count;
  return block;
}

}  // namespace

void* Slabs::Allocate(int64_t bytes, Use use) {
  const int size_class = ClassOf(bytes, use);
  ThreadCache& own = thread_cache[size_class];
  void* const block = own.first;
  if (block == nullptr) return Refill(size_class);
  own.first = NextOf(block);
  --own.count;
  return block;
}

void Slabs::Free(void* block) {
  const int size_class = SlabOf(block)->size_class;
  ThreadCache& own = thread_cache[size_class];
  if (own.first == nullptr) ReturnBlocksAtThreadEnd();
  NextOf(block) = own.first;
  own.first = block;
  if (++own.count <= kMaxThreadCacheBlocks[size_class]) return;
  const int returned = own.count / 2;
  own.first = size_classes[size_class].Return(own.first, returned);
  own.count -= returned;
}

void Slabs::ReleaseIdle() { Unused().Release(/*all=*/true); }
void Slabs::ReleaseUnused() { Unused().Release(/*all=*/false); }

#endif

}  // namespace tensord::server
