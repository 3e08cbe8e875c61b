// Buffers own memory of a device. A buffer counts against the device's limit while a reference to
// it exists.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "absl/status/statusor.h"

namespace tensord::server {

class Device;
class MemoryAccount;

// BufferRefs share the ownership. When the last reference is dropped, on any thread, the memory
// returns to the device. The device must outlive its buffers. data() is an address of that device:
// the host may dereference it only if Device::host_accessible().
//
// A buffer is written once, before it is shared, with one exception: if a kernel's input has no
// other reference, the kernel may write its output to the input's buffer
// (PreparedKernel::in_place). A view (BufferView) is a part of another buffer. A view doesn't have
// the backend's class, but its owner() has.
class Buffer {
 public:
  virtual ~Buffer();
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  Device& device() const { return *device_; }
  void* data() const { return data_; }                // null if size_bytes() is 0
  int64_t size_bytes() const { return size_bytes_; }  // as requested; the limit counts this
  // Returns the account that the buffer is charged to while it exists. If the buffer has no
  // account, or is empty, returns null.
  MemoryAccount* account() const { return account_; }

  bool is_view() const { return is_view_; }
  // Returns the buffer that owns the memory. For a view, this is the buffer that it is a part of.
  const Buffer& owner() const;

  // Keeps `object` alive until the buffer has been destroyed. Call it before the buffer is shared.
  void KeepAlive(std::shared_ptr<const void> object) { kept_alive_ = std::move(object); }

 protected:
  Buffer(Device* device, void* data, int64_t size_bytes)
      : device_(device), data_(data), size_bytes_(size_bytes) {}

 private:
  friend class BufferRef;
  friend class BufferView;
  friend class MemoryAccount;

  Device* device_;
  void* data_;
  int64_t size_bytes_;
  MemoryAccount* account_ = nullptr;
  std::shared_ptr<const void> kept_alive_;
  std::atomic<int32_t> references_{1};
  bool is_view_ = false;
};

// Refers to a Buffer, or is null. A BufferRef works as a shared_ptr does, but takes one word. The
// reference count is in the buffer, so it needs no allocation.
class BufferRef {
 public:
  BufferRef() = default;
  BufferRef(std::nullptr_t) {}  // NOLINT: implicit, as for shared_ptr
  // Takes ownership of a buffer that was made by `new`.
  explicit BufferRef(Buffer* made) : buffer_(made) {}
  ~BufferRef() { reset(); }
  BufferRef(const BufferRef& other) : buffer_(other.buffer_) {
    if (buffer_ != nullptr) buffer_->references_.fetch_add(1, std::memory_order_relaxed);
  }
  BufferRef(BufferRef&& other) noexcept : buffer_(std::exchange(other.buffer_, nullptr)) {}
  BufferRef& operator=(BufferRef other) noexcept {
    std::swap(buffer_, other.buffer_);
    return *this;
  }

  void reset() {
    Buffer* const buffer = std::exchange(buffer_, nullptr);
    if (buffer == nullptr) return;
    // The last reference needs no atomic subtraction: no other thread can copy it.
    if (buffer->references_.load(std::memory_order_acquire) == 1 ||
        buffer->references_.fetch_sub(1, std::memory_order_acq_rel) == 1) {
      delete buffer;
    }
  }

  Buffer* get() const { return buffer_; }
  Buffer& operator*() const { return *buffer_; }
  Buffer* operator->() const { return buffer_; }
  explicit operator bool() const { return buffer_ != nullptr; }
  // Returns the number of references to the buffer. If it is 1, no other thread has a reference.
  int32_t use_count() const { return buffer_->references_.load(std::memory_order_acquire); }

  friend bool operator==(const BufferRef& a, const BufferRef& b) { return a.buffer_ == b.buffer_; }
  friend bool operator!=(const BufferRef& a, const BufferRef& b) { return a.buffer_ != b.buffer_; }

 private:
  Buffer* buffer_ = nullptr;
};

// A view is a part of another buffer. It has no account: its bytes are charged with the other
// buffer.
class BufferView final : public Buffer {
 public:
  // Returns the bytes [offset, offset + size_bytes) of `source`, and keeps their owner alive. The
  // range must lie within `source`.
  static BufferRef Make(const BufferRef& source, int64_t offset, int64_t size_bytes);
  // Returns such a view, but the caller must keep the owner alive.
  static BufferRef MakeUnowned(const Buffer& source, int64_t offset, int64_t size_bytes);

 private:
  friend class Buffer;

  BufferView(const Buffer& source, BufferRef kept, int64_t offset, int64_t size_bytes);

  const Buffer& source_;  // the owner of the memory, which is never a view
  const BufferRef kept_;  // keeps source_ alive; null if the caller does
};

inline const Buffer& Buffer::owner() const {
  return is_view_ ? static_cast<const BufferView*>(this)->source_ : *this;
}

}  // namespace tensord::server
