#include "tensord/server/device/memory_reclaimer.h"

#include <malloc.h>

#include <algorithm>
#include <utility>

#include "tensord/server/device/slabs.h"

namespace tensord::server {
namespace {

// Calls malloc_trim() if at least kMinTrimBytes of malloc's memory were free at the last two calls
// and have not been returned to the system. Not thread-safe.
class HeapTrimmer {
 public:
  void TrimIfUseful() {
#if defined(__GLIBC__)
    const size_t free_bytes = FreeBytes();
    const size_t unused_bytes = std::min(free_bytes, last_free_bytes_);
    last_free_bytes_ = free_bytes;
    released_bytes_ = std::min(released_bytes_, unused_bytes);
    if (unused_bytes - released_bytes_ < kMinTrimBytes) return;
    malloc_trim(kKeptBytes);
    last_free_bytes_ = released_bytes_ = FreeBytes();
#endif
  }

 private:
  // A trim causes page faults later, so small amounts aren't trimmed.
  static constexpr size_t kMinTrimBytes = 8 << 20;
  static constexpr size_t kKeptBytes = 4 << 20;

#if defined(__GLIBC__)
  static size_t FreeBytes() { return mallinfo2().fordblks; }
#endif

  size_t last_free_bytes_ = 0;
  size_t released_bytes_ = 0;  // of the free bytes, those already returned to the system
};

}  // namespace

MemoryReclaimer::MemoryReclaimer(std::vector<Device*> devices, std::function<void()> after_reclaim)
    : devices_(std::move(devices)),
      after_reclaim_(std::move(after_reclaim)),
      thread_([this] { Run(); }) {}

MemoryReclaimer::~MemoryReclaimer() {
  {
    MutexLock lock(&mu_);
    stopping_ = true;
  }
  wake_.SignalAll();
  thread_.join();
}

void MemoryReclaimer::Run() {
  HeapTrimmer heap;
  while (true) {
    {
      MutexLock lock(&mu_);
      if (!stopping_) wake_.WaitFor(&mu_, kInterval);
      if (stopping_) return;
    }
    for (Device* device : devices_) device->ReleaseUnusedMemory();
    Slabs::ReleaseUnused();
    heap.TrimIfUseful();
    after_reclaim_();
  }
}

}  // namespace tensord::server
