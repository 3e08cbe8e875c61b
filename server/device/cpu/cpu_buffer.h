// Buffers of the CPU device, as its kernels see them.
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

  // Records that the device has packed weights of this buffer. Executor thread.
  void MarkPacked() const { packed_.store(true, std::memory_order_relaxed); }

  // Drops the packed copies. Call it before a buffer that kernels may have read is written again.
  void BeforeOverwrite() {
    if (packed_.load(std::memory_order_relaxed)) ForgetPacked();
  }

 private:
  void ForgetPacked();

  CpuDevice* const owner_;
  const bool owns_data_;  // or the memory came with the object
  mutable std::atomic<bool> packed_{false};
};

}  // namespace tensord::server
