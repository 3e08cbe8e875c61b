// Admits calls until it is closed. Closing waits until the last admitted call has returned.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

#include "tensord/common/util/mutex.h"

namespace tensord::server {

// Thread-safe. A call costs two atomic additions.
class CallTracker {
 public:
  // An active call. Close() waits until this object is destroyed.
  class Call {
   public:
    explicit Call(CallTracker* tracker) : tracker_(tracker), admitted_(tracker->Begin()) {}
    ~Call() { tracker_->End(); }
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;

    // Returns false if Close() has been called. The call must then not proceed.
    bool admitted() const { return admitted_; }

   private:
    CallTracker* const tracker_;
    const bool admitted_;
  };

  // Admits no further calls. Blocks until the admitted calls have returned. Must not be called from
  // an admitted call.
  void Close() {
    closed_.store(true);
    MutexLock lock(&mu_);
    // End() signals without the lock, so Close() may miss a signal. It checks again after 10 ms.
    while (active_calls_.load() != 0) call_ended_.WaitFor(&mu_, std::chrono::milliseconds(10));
  }

 private:
  bool Begin() {
    active_calls_.fetch_add(1);
    return !closed_.load();
  }
  void End() {
    if (active_calls_.fetch_sub(1) == 1 && closed_.load()) call_ended_.SignalAll();
  }

  std::atomic<int64_t> active_calls_{0};
  std::atomic<bool> closed_{false};
  Mutex mu_;
  CondVar call_ended_;
};

}  // namespace tensord::server
