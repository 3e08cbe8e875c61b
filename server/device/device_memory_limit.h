// Counts all bytes of a device against the device's limit. (memory_account.h counts the bytes of a
// session.) All backends use this class, so their errors are the same. An error has an ErrorInfo of
// reason DEVICE_OUT_OF_MEMORY with device, requested_bytes, free_bytes and limit_bytes. It has a
// RetryInfo if the request fits the device's limit and the physical device's memory.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tensord/common/device_name.h"
#include "tensord/server/device/device.h"

namespace tensord::server {

// Thread-safe.
class DeviceMemoryLimit {
 public:
  DeviceMemoryLimit(DeviceName device, int64_t total_bytes, int64_t limit_bytes)
      : device_(device), total_bytes_(total_bytes), limit_bytes_(limit_bytes) {}

  // Counts `bytes`. If that would exceed the limit, changes nothing and returns RESOURCE_EXHAUSTED.
  absl::Status Reserve(int64_t bytes);
  void Release(int64_t bytes);

  // The same for a copy that the backend keeps for speed. It counts as used memory, but not in the
  // peak, because the backend frees it if an allocation needs the room.
  absl::Status ReserveCopy(int64_t bytes);
  void ReleaseCopy(int64_t bytes);

  // Returns the error of an allocation that is within the limit, but exceeds the free memory of the
  // physical device.
  absl::Status PhysicallyExhausted(int64_t bytes, int64_t physically_free_bytes) const;

  // Returns the error of an allocation that is within the limit, if BufferPages() has no room
  // for it. `free_page_bytes` is the room that is left.
  absl::Status PagesExhausted(int64_t bytes, int64_t free_page_bytes) const;

  MemoryStats Snapshot() const;
  int64_t free_bytes() const { return limit_bytes_ - used_bytes_.load(std::memory_order_relaxed); }

 private:
  // Adds `bytes` to used_bytes_, and returns the sum.
  absl::StatusOr<int64_t> Add(int64_t bytes);
  absl::Status Refuse(int64_t bytes, int64_t free_bytes, const std::string& message) const;

  const DeviceName device_;
  const int64_t total_bytes_;
  const int64_t limit_bytes_;
  std::atomic<int64_t> used_bytes_{0};
  std::atomic<int64_t> copies_bytes_{0};  // the part of used_bytes_ that copies use
  std::atomic<int64_t> peak_bytes_{0};
};

// If a buffer of `bytes` can't fit in the device's limit, returns the error of its allocation.
absl::Status CheckFitsLimit(const Device& device, int64_t bytes);

}  // namespace tensord::server
