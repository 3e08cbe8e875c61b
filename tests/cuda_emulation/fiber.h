// A stack on which code runs that may stop halfway and be resumed later.
#pragma once

#include <cstddef>

namespace tensord::cuda_emulation {

// Not thread-safe: a fiber is made, resumed and destroyed by one OS thread.
class Fiber {
 public:
  static constexpr size_t kStackBytes = size_t{64} << 10;

  // `entry` runs on the first Resume(). It must not return.
  explicit Fiber(void (*entry)());
  // A fiber may be destroyed while it is suspended: objects on its stack are not destroyed.
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  // Runs the fiber until it suspends.
  void Resume();

  // Called on a fiber: returns to the Resume() that runs it. Returns at the next Resume().
  static void Suspend();

  // The fiber that the calling OS thread runs; null outside of Resume().
  static Fiber* Current();

  // To be called after a jump out of the current fiber's stack, for example from a signal handler:
  // the calling OS thread runs on its own stack again.
  static void LeaveByJump();

 private:
  static void Start();

  void (*const entry_)();
  char* mapping_ = nullptr;        // a guard page and the stack
  void* stack_pointer_ = nullptr;  // while suspended
  void* fake_stack_ = nullptr;     // AddressSanitizer's
  void* tsan_fiber_ = nullptr;     // ThreadSanitizer's
};

}  // namespace tensord::cuda_emulation
