// Memory of a device, counted against its limit for as long as someone holds it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace tensord::server {

class Device;

// Ownership is shared; the memory goes back to its device when the last holder lets go, from any
// thread. The device outlives its buffers. `data()` is an address of that device: the host may
// dereference it only where Device::host_accessible().
//
// A buffer is written once, by whoever allocated it, before anyone else sees it, and never again.
class Buffer {
 public:
  virtual ~Buffer() = default;
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  Device& device() const { return *device_; }
  void* data() const { return data_; }                // null where size_bytes() is 0
  int64_t size_bytes() const { return size_bytes_; }  // as asked for; what the limit counts

 protected:
  Buffer(Device* device, void* data, int64_t size_bytes)
      : device_(device), data_(data), size_bytes_(size_bytes) {}

 private:
  Device* device_;
  void* data_;
  int64_t size_bytes_;
};

using BufferRef = std::shared_ptr<Buffer>;

}  // namespace tensord::server
