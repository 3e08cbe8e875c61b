// Memory of a device, counted against its limit for as long as someone holds it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"

namespace tensord::server {

class Device;
class MemoryAccount;

// Ownership is shared; the memory goes back to its device when the last holder lets go, from any
// thread. The device outlives its buffers. `data()` is an address of that device: the host may
// dereference it only where Device::host_accessible().
//
// A buffer is written once, by whoever allocated it, before anyone else sees it, and never again.
class Buffer {
 public:
  virtual ~Buffer();
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  Device& device() const { return *device_; }
  void* data() const { return data_; }                // null where size_bytes() is 0
  int64_t size_bytes() const { return size_bytes_; }  // as asked for; what the limit counts
  // Who it is charged to, for as long as it lives; null for nobody,
  // and where it is empty.
  MemoryAccount* account() const { return account_; }

 protected:
  Buffer(Device* device, void* data, int64_t size_bytes)
      : device_(device), data_(data), size_bytes_(size_bytes) {}

 private:
  friend class MemoryAccount;

  Device* device_;
  void* data_;
  int64_t size_bytes_;
  MemoryAccount* account_ = nullptr;
};

using BufferRef = std::shared_ptr<Buffer>;

}  // namespace tensord::server
