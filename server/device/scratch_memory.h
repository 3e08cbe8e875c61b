// Memory that kernels need in addition to their operands.
#pragma once

#include <cstdint>
#include <utility>

#include "absl/status/statusor.h"
#include "tensord/server/device/device.h"

namespace tensord::server {

// Memory for the intermediate values of one launch. It is a buffer: AllocateFor() charges it to the
// session's account and counts it against the device's limit before it exists.
//
// One launch at a time holds scratch memory of a device, because one thread at a time launches. So
// an allocation never waits for the scratch memory of another op. It fails only if the op doesn't
// fit beside the tensors that exist.
class ScratchMemory {
 public:
  // Backends take blocks of up to this size from lists of small blocks, without a charge. A launch
  // holds at most a few of them, or a few for each thread of the device's team.
  static constexpr int64_t kMaxUnchargedBytes = 16 << 10;

  ScratchMemory() = default;
  ~ScratchMemory();
  ScratchMemory(ScratchMemory&& other) noexcept = default;
  ScratchMemory& operator=(ScratchMemory&& other) noexcept {
    std::swap(buffer_, other.buffer_);
    std::swap(device_, other.device_);
    return *this;
  }

  // Allocates `size_bytes` > 0 from call.context.device. If there is too little memory, returns
  // RESOURCE_EXHAUSTED, which says how much the op needs in all. Any thread that computes a part of
  // the call may call it.
  static absl::StatusOr<ScratchMemory> Allocate(const KernelCall& call, int64_t size_bytes);

  void* data() const { return buffer_ == nullptr ? nullptr : buffer_->data(); }

 private:
  ScratchMemory(Device* device, BufferRef buffer);

  BufferRef buffer_;
  Device* device_ = nullptr;  // counts the bytes (Device::scratch_bytes)
};

}  // namespace tensord::server
