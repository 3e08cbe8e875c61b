// A fiber: code that runs on its own stack and can be suspended and resumed.
#pragma once

#include <cstddef>

namespace tensord::cuda_emulation {

// Not thread-safe: one OS thread creates, resumes and destroys a fiber.
class Fiber {
 public:
  static constexpr size_t kStackBytes = size_t{64} << 10;

  // Allocates the stack. `entry` runs at the first Resume() and must not return.
  explicit Fiber(void (*entry)());
  // The fiber may be suspended; the objects on its stack are then not destroyed.
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  // Runs the fiber until it calls Suspend(). Must not be called on a fiber.
  void Resume();

  // Suspends the current fiber: Resume() returns to its caller. The fiber continues at the next
  // Resume().
  static void Suspend();

  // Returns the fiber that the calling OS thread runs; null outside of Resume().
  static Fiber* Current();

  // Must be called after siglongjmp() has left the current fiber's stack. Tells the sanitizers that
  // the calling OS thread runs on its own stack again. Current() is null afterwards.
  static void OnJumpedOut();

 private:
  static void Start();

  void (*const entry_)();
  char* mapping_ = nullptr;                      // a guard page and the stack
  void* stack_pointer_ = nullptr;                // while suspended
  [[maybe_unused]] void* fake_stack_ = nullptr;  // AddressSanitizer's
  [[maybe_unused]] void* tsan_fiber_ = nullptr;  // ThreadSanitizer's
};

}  // namespace tensord::cuda_emulation
