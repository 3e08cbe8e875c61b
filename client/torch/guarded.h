// A value with its mutex. Code reaches the value only while it holds the mutex.
#pragma once

#include <mutex>

namespace torch_tensord {

template <typename T>
class Guarded {
 public:
  // Holds the mutex as long as it exists.
  class Access {
   public:
    explicit Access(Guarded& guarded) : lock_(guarded.mutex_), value_(guarded.value_) {}
    Access(const Access&) = delete;
    Access& operator=(const Access&) = delete;
    T& operator*() const { return value_; }
    T* operator->() const { return &value_; }

   private:
    const std::lock_guard<std::mutex> lock_;
    T& value_;
  };

  // Waits until no other thread holds the mutex.
  Access Lock() { return Access(*this); }

 private:
  std::mutex mutex_;
  T value_;
};

}  // namespace torch_tensord
