// Memory for small objects of which the server has many: tensors, and buffers of few elements.
#pragma once

#include <cstddef>
#include <cstdint>
#include <new>

#if defined(__SANITIZE_ADDRESS__)
#define TENSORD_ADDRESS_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define TENSORD_ADDRESS_SANITIZER 1
#endif
#endif

namespace tensord::server {

// Allocates blocks of up to kMaxBlockBytes. A block has no header: a slab of 64 KiB holds blocks of
// one size class. Each thread keeps some free blocks, so most calls take a few nanoseconds and no
// lock. Under AddressSanitizer each block is an allocation of its own, so that AddressSanitizer
// detects uses after Free(). Thread-safe.
class Slabs {
 public:
  static constexpr int64_t kMaxBlockBytes = 16 << 10;
  static constexpr int64_t kSlabBytes = 64 << 10;

  // A slab holds blocks of one use. BufferPages() counts the slabs of kBuffers, and the slabs
  // without used blocks that are kept for reuse.
  enum class Use { kObjects, kBuffers };

  // Returns `bytes` bytes, from 1 to kMaxBlockBytes. They are aligned to 64 bytes if `bytes` is a
  // multiple of 64, otherwise to 32. Sizes up to 512 are rounded up to a multiple of 32, larger
  // ones to one of eight classes per power of two. If the system has too little memory, or
  // BufferPages() has too little room, returns null.
  static void* Allocate(int64_t bytes, Use use = Use::kObjects);
  static void Free(void* block);

  // Returns to the system the memory of all slabs without used blocks.
  static void ReleaseIdle();
  // Returns to the system the memory of all slabs that have been unused since the last call.
  static void ReleaseUnused();
};

// A standard allocator for single objects. If the system has too little memory, throws
// std::bad_alloc.
template <typename T>
struct SlabAllocator {
  using value_type = T;

  SlabAllocator() = default;
  template <typename U>
  explicit SlabAllocator(const SlabAllocator<U>& /*other*/) {}

  T* allocate(size_t count) {
    static_assert(sizeof(T) <= Slabs::kMaxBlockBytes);
    static_assert(alignof(T) <= 32);
    void* const block = Slabs::Allocate(static_cast<int64_t>(count * sizeof(T)));
    if (block == nullptr) throw std::bad_alloc();
    return static_cast<T*>(block);
  }
  void deallocate(T* block, size_t /*count*/) { Slabs::Free(block); }

  friend bool operator==(const SlabAllocator&, const SlabAllocator&) { return true; }
  friend bool operator!=(const SlabAllocator&, const SlabAllocator&) { return false; }
};

}  // namespace tensord::server
