// Lets calls through until it is closed, and tells when the last of them has left.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

#include "tensord/common/mutex.h"

namespace tensord::server {

// Thread-safe. Going through costs two atomic additions.
class CallGate {
 public:
  // A call, for as long as it lives.
  class Entry {
   public:
    explicit Entry(CallGate* gate) : gate_(gate), entered_(gate->Enter()) {}
    ~Entry() { gate_->Leave(); }
    Entry(const Entry&) = delete;
    Entry& operator=(const Entry&) = delete;

    // False where the gate is closed.
    bool entered() const { return entered_; }

   private:
    CallGate* const gate_;
    const bool entered_;
  };

  // Nobody enters from here on. Waits until those who have are gone; not from a call.
  void Close() {
    closed_.store(true);
    MutexLock lock(&mu_);
    // Whoever leaves doesn't take the lock: now and then it is looked again.
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
