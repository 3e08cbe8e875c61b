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
  // An active call. Closing the gate waits until this object is destroyed.
  class Entry {
   public:
    explicit Entry(CallGate* gate) : gate_(gate), entered_(gate->Enter()) {}
    ~Entry() { gate_->Leave(); }
    Entry(const Entry&) = delete;
    Entry& operator=(const Entry&) = delete;

    // Returns false if the gate was closed. The call must then not proceed.
    bool entered() const { return entered_; }

   private:
    CallGate* const gate_;
    const bool entered_;
  };

  // Admits no further calls. Blocks until the admitted calls have returned. Must not be called from
  // an admitted call.
  void Close() {
    closed_.store(true);
    MutexLock lock(&mu_);
    // Leave() signals without the lock, so Close() may miss a signal. It checks again after 10 ms.
    while (active_calls_.load() != 0) call_ended_.WaitFor(&mu_, std::chrono::milliseconds(10));
  }

 private:
  bool Enter() {
    active_calls_.fetch_add(1);
    return !closed_.load();
  }
  void Leave() {
    if (active_calls_.fetch_sub(1) == 1 && closed_.load()) call_ended_.SignalAll();
  }

  std::atomic<int64_t> active_calls_{0};
  std::atomic<bool> closed_{false};
  Mutex mu_;
  CondVar call_ended_;
};

}  // namespace tensord::server
