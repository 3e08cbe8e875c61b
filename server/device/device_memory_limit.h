// Counts a device's bytes against its limit. Shared by all backends so that the figures and the
// words of a refusal are the same everywhere, for people and for programs: an ErrorInfo of reason
// DEVICE_OUT_OF_MEMORY with device, requested_bytes, free_bytes and limit_bytes, and a RetryInfo
// where the device had room if others held less.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "tensord/common/device_name.h"
#include "tensord/server/device/device.h"

namespace tensord::server {

// Thread-safe.
class DeviceMemoryLimit {
 public:
  DeviceMemoryLimit(DeviceName device, int64_t total_bytes, int64_t limit_bytes)
      : device_(device), total_bytes_(total_bytes), limit_bytes_(limit_bytes) {}

  // Takes `bytes` or changes nothing: RESOURCE_EXHAUSTED with asked, free and limit.
  absl::Status Reserve(int64_t bytes);
  void Release(int64_t bytes);

  // The refusal of an allocation that the limit allowed and the physical device did not.
  absl::Status PhysicallyExhausted(int64_t bytes, int64_t physically_free_bytes) const;

  MemoryStats Snapshot() const;

 private:
  absl::Status Refuse(int64_t bytes, int64_t free_bytes, const std::string& message) const;

  const DeviceName device_;
  const int64_t total_bytes_;
  const int64_t limit_bytes_;
  std::atomic<int64_t> used_bytes_{0};
  std::atomic<int64_t> peak_bytes_{0};
};

}  // namespace tensord::server
