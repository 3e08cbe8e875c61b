// Memory of a device. A buffer counts against the device's limit while a reference to it exists.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"

namespace tensord::server {

class Device;
class MemoryAccount;

// Ownership is shared. When the last reference is dropped, on any thread, the memory returns to the
// device. The device must outlive its buffers. data() is an address of that device: the host may
// dereference it only if Device::host_accessible().
//
// A buffer is written once, before it is shared. Exception: if a kernel's input has no other
// reference, the kernel may write its output to the input's buffer (PreparedKernel::in_place).
class Buffer {
 public:
  virtual ~Buffer();
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  Device& device() const { return *device_; }
  void* data() const { return data_; }                // null if size_bytes() is 0
  int64_t size_bytes() const { return size_bytes_; }  // as requested; the limit counts this
  // The account that the buffer is charged to while it exists. Null if the buffer has no account or
  // is empty.
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
