// Calls of the library's user around a wait that hides in an op.
#pragma once

#include <atomic>

#include "absl/base/thread_annotations.h"
#include "tensord/common/util/mutex.h"

namespace tensord::internal {

// An op waits while the command queue is full. A language with a global lock must release it
// meanwhile: the Python extension sets these functions. The library calls both on the waiting
// thread: `before` when a wait begins, and `after` when it has ended, with the result of `before`.
// `after` takes the global lock. So a mutex that a thread holds while it queues ops is taken with
// HookedMutexLock. Otherwise the thread would wait in `after` for the holder of the global lock,
// which would wait for the mutex.
struct WaitHooks {
  void* (*before)();
  void (*after)(void* state);
};

// Null: none. `hooks` must exist until the process ends. Thread-safe.
inline std::atomic<const WaitHooks*> wait_hooks{nullptr};

// Calls `before` now, and `after` when it is destroyed.
class HookedWait {
 public:
  HookedWait() : hooks_(wait_hooks.load(std::memory_order_acquire)) {
    if (hooks_ != nullptr) state_ = hooks_->before();
  }
  ~HookedWait() {
    if (hooks_ != nullptr) hooks_->after(state_);
  }
  HookedWait(const HookedWait&) = delete;
  HookedWait& operator=(const HookedWait&) = delete;

 private:
  const WaitHooks* const hooks_;
  void* state_ = nullptr;
};

// Holds a mutex during its lifetime. If another thread has the mutex, waits with the hooks.
class ABSL_SCOPED_LOCKABLE HookedMutexLock {
 public:
  explicit HookedMutexLock(Mutex* mu) ABSL_EXCLUSIVE_LOCK_FUNCTION(mu) : mu_(mu) {
    if (mu->TryLock()) return;
    const HookedWait hooked;
    mu->Lock();
  }
  ~HookedMutexLock() ABSL_UNLOCK_FUNCTION() { mu_->Unlock(); }
  HookedMutexLock(const HookedMutexLock&) = delete;
  HookedMutexLock& operator=(const HookedMutexLock&) = delete;

 private:
  Mutex* const mu_;
};

}  // namespace tensord::internal
