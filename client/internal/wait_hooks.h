// Calls of the library's user around a wait that hides in an op.
#pragma once

#include <atomic>

namespace tensord::internal {

// An op waits while the command queue is full. A language with a global lock must release it
// meanwhile: the Python extension sets these functions. The library calls both on the waiting
// thread, without a lock of its own: `before` when a wait begins, and `after` when it has ended,
// with the result of `before`.
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

}  // namespace tensord::internal
