// Memory that the server shares with a client on the same host.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "tensord/server/device/host_memory.h"

namespace tensord::server {

// A mapped memory file. It is sealed, so that no process can change its size. The client may change
// the content at any time, so never rely on the content.
//
// The destructor withdraws the file, as SharedMapping describes: it marks the file, and then frees
// its memory. So a client that keeps the descriptor or a mapping holds no memory of the server. If
// the client accesses the pages again, the kernel charges new ones to the client's cgroup. Pages
// that the client has pinned stay until it unpins them.
class SharedRegion {
 public:
  // Allocates and maps a region of `size_bytes`. If the host doesn't have enough memory, returns
  // RESOURCE_EXHAUSTED. If the kernel doesn't support sealed memory files, returns
  // FAILED_PRECONDITION.
  static absl::StatusOr<std::shared_ptr<SharedRegion>> Make(int64_t size_bytes);
  ~SharedRegion();
  SharedRegion(const SharedRegion&) = delete;
  SharedRegion& operator=(const SharedRegion&) = delete;

  int fd() const { return fd_; }
  uint8_t* data() const { return data_; }
  int64_t size_bytes() const { return size_bytes_; }
  // Returns the memory for Device::WriteFrom() and ReadInto(). After such a transfer, the region's
  // destructor may block until the GPU has finished its current work.
  HostMemory& memory() const { return *memory_; }

 private:
  SharedRegion() = default;

  int fd_ = -1;
  uint8_t* data_ = nullptr;
  int64_t size_bytes_ = 0;
  std::unique_ptr<HostMemory> memory_;
};

}  // namespace tensord::server
