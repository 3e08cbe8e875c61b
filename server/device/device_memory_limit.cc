#include "tensord/server/device/device_memory_limit.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "tensord/common/status_details.h"
#include "tensord/common/util/status_macros.h"

namespace tensord::server {

absl::StatusOr<int64_t> DeviceMemoryLimit::Add(int64_t bytes) {
  int64_t used = used_bytes_.load(std::memory_order_relaxed);
  do {
    if (bytes > limit_bytes_ - used) {
      const int64_t free_bytes = std::max<int64_t>(0, limit_bytes_ - used);
      if (bytes > limit_bytes_) {
        return Refuse(bytes, free_bytes,
                      absl::StrCat("its limit is ", limit_bytes_,
                                   " bytes in all; use smaller tensors, or another device"));
      }
      return Refuse(bytes, free_bytes,
                    absl::StrCat(free_bytes, " bytes are free of its limit of ", limit_bytes_,
                                 " bytes; delete tensors there, or copy to another device"));
    }
  } while (!used_bytes_.compare_exchange_weak(used, used + bytes, std::memory_order_relaxed));
  return used + bytes;
}

absl::Status DeviceMemoryLimit::Reserve(int64_t bytes) {
  TENSORD_ASSIGN_OR_RETURN(const int64_t used, Add(bytes));
  const int64_t of_buffers = used - copies_bytes_.load(std::memory_order_relaxed);
  int64_t peak = peak_bytes_.load(std::memory_order_relaxed);
  while (of_buffers > peak &&
         !peak_bytes_.compare_exchange_weak(peak, of_buffers, std::memory_order_relaxed)) {
  }
  return absl::OkStatus();
}

void DeviceMemoryLimit::Release(int64_t bytes) {
  used_bytes_.fetch_sub(bytes, std::memory_order_relaxed);
}

absl::Status DeviceMemoryLimit::ReserveCopy(int64_t bytes) {
  TENSORD_RETURN_IF_ERROR(Add(bytes).status());
  copies_bytes_.fetch_add(bytes, std::memory_order_relaxed);
  return absl::OkStatus();
}

void DeviceMemoryLimit::ReleaseCopy(int64_t bytes) {
  copies_bytes_.fetch_sub(bytes, std::memory_order_relaxed);
  Release(bytes);
}

absl::Status DeviceMemoryLimit::PhysicallyExhausted(int64_t bytes,
                                                    int64_t physically_free_bytes) const {
  return Refuse(
      bytes, physically_free_bytes,
      absl::StrCat(physically_free_bytes, " bytes are free on the physical device (its limit is ",
                   limit_bytes_, " bytes); other programs use the rest"));
}

absl::Status DeviceMemoryLimit::PagesExhausted(int64_t bytes, int64_t free_page_bytes) const {
  return Refuse(
      bytes, free_page_bytes,
      absl::StrCat("but only ", free_page_bytes,
                   " bytes of the pages of all CPU devices are free (the device's limit is ",
                   limit_bytes_,
                   " bytes): small and deleted tensors have left the memory fragmented; "
                   "delete more tensors"));
}

absl::Status DeviceMemoryLimit::Refuse(int64_t bytes, int64_t free_bytes,
                                       const std::string& message) const {
  absl::Status status = WithErrorInfo(
      absl::ResourceExhaustedError(absl::StrCat(device_.ToString(), " is out of memory: asked for ",
                                                bytes, " bytes, ", message)),
      "DEVICE_OUT_OF_MEMORY",
      {{"device", device_.ToString()},
       {"requested_bytes", absl::StrCat(bytes)},
       {"free_bytes", absl::StrCat(free_bytes)},
       {"limit_bytes", absl::StrCat(limit_bytes_)}});
  if (bytes > std::min(limit_bytes_, total_bytes_)) return status;  // can never succeed
  return WithRetryInfo(std::move(status), 1);
}

absl::Status CheckFitsLimit(const Device& device, int64_t bytes) {
  const MemoryStats memory = device.memory();
  if (bytes <= memory.limit_bytes) return absl::OkStatus();
  return DeviceMemoryLimit(device.name(), memory.total_bytes, memory.limit_bytes).Reserve(bytes);
}

MemoryStats DeviceMemoryLimit::Snapshot() const {
  return {total_bytes_, limit_bytes_, used_bytes_.load(std::memory_order_relaxed),
          peak_bytes_.load(std::memory_order_relaxed)};
}

}  // namespace tensord::server
