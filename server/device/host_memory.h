// Host memory that many transfers use, such as a ring shared with a client.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/functional/function_ref.h"
#include "tensord/common/util/mutex.h"

namespace tensord::server {

// Memory that Device::WriteFrom() reads and Device::ReadInto() writes. A backend may prepare the
// memory at its first use, and keeps the state of this preparation here. Destroy this object when
// no transfer uses the memory any more, and before the memory is unmapped. The destructor may block
// until the device has finished its current work. Thread-safe.
class HostMemory {
 public:
  // The state of a backend. It is destroyed with the HostMemory.
  class Preparation {
   public:
    virtual ~Preparation() = default;
  };

  HostMemory(void* data, int64_t size_bytes)
      : data_(static_cast<char*>(data)), size_bytes_(size_bytes) {}
  HostMemory(const HostMemory&) = delete;
  HostMemory& operator=(const HostMemory&) = delete;

  char* data() const { return data_; }
  int64_t size_bytes() const { return size_bytes_; }

  // Returns the Preparation, which the first call creates with `make`. Only one backend may call
  // this function.
  Preparation& Prepare(absl::FunctionRef<std::unique_ptr<Preparation>()> make) {
    MutexLock lock(&mu_);
    if (preparation_ == nullptr) preparation_ = make();
    return *preparation_;
  }

  // Returns whether Prepare() has been called.
  bool prepared() const {
    MutexLock lock(&mu_);
    return preparation_ != nullptr;
  }

 private:
  char* const data_;
  const int64_t size_bytes_;
  mutable Mutex mu_;
  std::unique_ptr<Preparation> preparation_ ABSL_GUARDED_BY(mu_);
};

}  // namespace tensord::server
