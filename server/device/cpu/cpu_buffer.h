// The buffers of the CPU device.
#pragma once

#include <atomic>
#include <cstdint>

#include "tensord/server/device/buffer.h"

namespace tensord::server {

class CpuDevice;

class CpuBuffer final : public Buffer {
 public:
  CpuBuffer(CpuDevice* device, void* data, int64_t size_bytes, bool owns_data);
  ~CpuBuffer() override;

  // Records that the device may have a packed copy of this buffer (packed_weights.h). Executor
  // thread.
  void MarkPacked() const { packed_.store(true, std::memory_order_relaxed); }

  // Drops the packed copy. Call it before a buffer that kernels may have read is written again.
  void BeforeOverwrite() {
    if (packed_.load(std::memory_order_relaxed)) ForgetPacked();
  }

 private:
  void ForgetPacked();

  CpuDevice* const owner_;
  const bool owns_data_;  // false: the memory belongs to the object's own allocation
  mutable std::atomic<bool> packed_{false};
};

}  // namespace tensord::server
