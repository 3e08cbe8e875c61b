// The buffers of the CPU device.
#pragma once

#include <atomic>
#include <cstdint>

#include "tensord/server/device/buffer.h"
#include "tensord/server/device/slabs.h"

namespace tensord::server {

class CpuDevice;

class CpuBuffer final : public Buffer {
 public:
  // The caller has allocated the object from Slabs. The elements of a small buffer are part of the
  // object's block; those of a large one come from the device's pool.
  CpuBuffer(CpuDevice* device, void* data, int64_t size_bytes);
  ~CpuBuffer() override;
  static void operator delete(void* block) { Slabs::Free(block); }

  // Records that the device may have a packed copy of this buffer (packed_weights.h). Executor
  // thread.
  void MarkPacked() const { packed_.store(true, std::memory_order_relaxed); }

  // Drops the packed copy, if there is one.
  void DropPacked() {
    if (packed_.load(std::memory_order_relaxed)) InvalidatePacked();
  }

 private:
  void InvalidatePacked();

  mutable std::atomic<bool> packed_{false};
};

// Drops the packed copy of a buffer. Call this before a buffer that kernels may have read is written
// again. A view isn't a CpuBuffer, and is never packed.
inline void BeforeOverwrite(Buffer& buffer) {
  if (!buffer.is_view()) static_cast<CpuBuffer&>(buffer).DropPacked();
}

}  // namespace tensord::server
