// Admits calls until it is closed. Closing waits until the last admitted call has returned.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

#include "tensord/common/util/mutex.h"

namespace tensord::server {

// Thread-safe. A call costs two atomic additions.
class CallGate {
 public:
  // A call that is under way while this object exists.
  class Entry {
   public:
    explicit Entry(CallGate* gate) : gate_(gate), entered_(gate->Enter()) {}
    ~Entry() { gate_->Leave(); }
    Entry(const Entry&) = delete;
    Entry& operator=(const Entry&) = delete;

    // Returns false if the gate was closed: the call must not proceed.
    bool entered() const { return entered_; }

   private:
    CallGate* const gate_;
    const bool entered_;
  };

  // Admits no further calls. Blocks until the admitted ones have returned. Don't call it from an
  // admitted call.
  void Close() {
    closed_.store(true);
    MutexLock lock(&mu_);
    // Leave() signals without the lock, so a signal may be missed: check again after 10 ms.
    while (inside_.load() != 0) left_.WaitFor(&mu_, std::chrono::milliseconds(10));
  }

 private:
  bool Enter() {
    inside_.fetch_add(1);
    return !closed_.load();
  }
  void Leave() {
    if (inside_.fetch_sub(1) == 1 && closed_.load()) left_.SignalAll();
  }

  std::atomic<int64_t> inside_{0};
  std::atomic<bool> closed_{false};
  Mutex mu_;
  CondVar left_;
};

}  // namespace tensord::server
