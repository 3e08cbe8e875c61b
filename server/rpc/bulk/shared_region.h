// Memory that the server shares with a client on the same host.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "tensord/server/device/host_memory.h"

namespace tensord::server {

// A memory file, sealed so that nobody can change its size, mapped here and there before its first
// use. What lies in it a client may change at any time: it is data, never anything to rely on.
class SharedRegion {
 public:
  // RESOURCE_EXHAUSTED where the host has no memory for it, FAILED_PRECONDITION where its kernel
  // has no such files.
  static absl::StatusOr<std::shared_ptr<SharedRegion>> Make(int64_t size_bytes);
  ~SharedRegion();
  SharedRegion(const SharedRegion&) = delete;
  SharedRegion& operator=(const SharedRegion&) = delete;

  int fd() const { return fd_; }
  uint8_t* data() const { return data_; }
  int64_t size_bytes() const { return size_bytes_; }
  // For Device::WriteFrom(). After such a transfer, the region's destructor may block until the GPU
  // has finished its current work.
  HostMemory& memory() const { return *memory_; }

 private:
  SharedRegion() = default;

  int fd_ = -1;
  uint8_t* data_ = nullptr;
  int64_t size_bytes_ = 0;
  std::unique_ptr<HostMemory> memory_;
};

}  // namespace tensord::server
