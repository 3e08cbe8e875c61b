// Functions that a user of the library sets, and that the library calls around a wait within an op.
#pragma once

#include <atomic>
#include <deque>

#include "absl/base/thread_annotations.h"
#include "tensord/client/internal/interruption.h"
#include "tensord/common/util/mutex.h"

namespace tensord::internal {

// An op waits while the command queue is full. A language with a global lock must release it
// meanwhile: the Python extension sets these functions. The library calls both on the waiting
// thread: `before` when a wait begins, and `after` when it has ended, with the result of `before`.
// `after` takes the global lock. If the library holds a mutex while it queues ops, it must take the
// mutex with HookedMutexLock. Otherwise, two threads could wait for each other: one holds the mutex
// and waits in `after` for the global lock, which the other holds while it waits for the mutex.
struct WaitHooks {
  void* (*before)();
  void (*after)(void* state);
};

// Null: none. `hooks` must exist until the process ends. Thread-safe.
inline std::atomic<const WaitHooks*> wait_hooks{nullptr};

// Returns a pair of hooks that exists until the process ends: a wait that has begun calls the
// `after` that belongs to its `before`. If `before` is null, returns null. Thread-safe.
inline const WaitHooks* KeepWaitHooks(void* (*before)(), void (*after)(void* state)) {
  static auto* const pairs = new std::deque<WaitHooks>;
  static Mutex mu;
  MutexLock lock(&mu);
  if (before == nullptr) return nullptr;
  pairs->push_back({before, after});
  return &pairs->back();
}

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

// Holds a mutex during its lifetime. If another thread holds the mutex, waits for it between the
// calls of the hooks. If the calling thread is interrupted meanwhile, doesn't get the mutex:
// interrupted() is true then, and the caller must not use what the mutex guards. The mutex must
// outlive this object.
class ABSL_SCOPED_LOCKABLE HookedMutexLock {
 public:
  explicit HookedMutexLock(Mutex* mu)
      ABSL_EXCLUSIVE_LOCK_FUNCTION(mu) ABSL_NO_THREAD_SAFETY_ANALYSIS : mu_(mu) {
    if (mu->TryLock()) return;
    const HookedWait hooked;
    interrupted_ = !PollUntil([mu] { return mu->TryLock(); }).ok();
  }
  ~HookedMutexLock() ABSL_UNLOCK_FUNCTION() ABSL_NO_THREAD_SAFETY_ANALYSIS {
    if (!interrupted_) mu_->Unlock();
  }
  HookedMutexLock(const HookedMutexLock&) = delete;
  HookedMutexLock& operator=(const HookedMutexLock&) = delete;

  bool interrupted() const { return interrupted_; }

 private:
  Mutex* const mu_;
  bool interrupted_ = false;
};

}  // namespace tensord::internal
