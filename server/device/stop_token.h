// The stop points of a long op: it ends early there, or the thread runs short tasks of other lanes.
//
// The engine sets the token of a thread while that thread runs an op. Work that may take longer
// than a few milliseconds is done in pieces: loops over elements, tiles of a product, the steps of
// a program. Between two pieces the thread checks its token. If the op must stop, the remaining
// pieces are skipped. The op's output is then incomplete, so the engine drops it and reports an
// error. An op that stops must leave all other state valid: prepared kernels, packed weights.
//
// Ops that run inline have no token. Work without a token never stops.
//
// At the same places, the executor's thread runs waiting short tasks of other lanes (Yielder).
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

#include "absl/status/status.h"

namespace tensord::server {

// The conditions under which an op must stop. Thread-safe.
struct StopToken {
  using Clock = std::chrono::steady_clock;

  // The op must stop once one of them is true. A flag never becomes false again. A null pointer is
  // no flag.
  const std::atomic<bool>* flags[2] = {};
  // The op must stop once this time has come.
  Clock::time_point deadline = Clock::time_point::max();
  // The number of checks that still let the op go on, or null if any number does. Each check
  // subtracts one. Tests stop an op at a chosen place with it.
  std::atomic<int64_t>* checks_left = nullptr;

  // Returns whether the op must stop. After it has returned true, it always returns true.
  bool stopped() const {
    for (const std::atomic<bool>* flag : flags) {
      if (flag != nullptr && flag->load(std::memory_order_relaxed)) return true;
    }
    if (checks_left != nullptr && checks_left->fetch_sub(1, std::memory_order_relaxed) <= 0) {
      return true;
    }
    return deadline != Clock::time_point::max() && Clock::now() >= deadline;
  }
};

// Sets the token of the calling thread. The destructor sets the previous one again.
class StopScope {
 public:
  // `token` must outlive the object. Null means that there is no token.
  explicit StopScope(const StopToken* token) : previous_(current) { current = token; }
  ~StopScope() { current = previous_; }
  StopScope(const StopScope&) = delete;
  StopScope& operator=(const StopScope&) = delete;

  // Returns the token of the calling thread. If there is none, returns null.
  static const StopToken* Current() { return current; }

 private:
  static inline constinit thread_local const StopToken* current = nullptr;

  const StopToken* const previous_;
};

// Runs waiting short tasks while a long task runs.
class Yielder {
 public:
  // If it returns false, no short task is waiting. If true, one may be.
  bool may_have_tasks() const { return may_have_tasks_.load(std::memory_order_relaxed); }
  virtual void Yield() = 0;

 protected:
  ~Yielder() = default;
  std::atomic<bool> may_have_tasks_{false};
};

// Sets the Yielder of the calling thread. The destructor restores the previous one. Set it to null
// where other tasks must not run. In a parallel region, the other threads have none.
class YieldScope {
 public:
  explicit YieldScope(Yielder* yielder) : previous_(current) { current = yielder; }
  ~YieldScope() { current = previous_; }
  YieldScope(const YieldScope&) = delete;
  YieldScope& operator=(const YieldScope&) = delete;

  static Yielder* Current() { return current; }

 private:
  static inline constinit thread_local Yielder* current = nullptr;

  Yielder* const previous_;
};

// Returns whether the op that the calling thread runs must stop. May first run short tasks of other
// lanes.
inline bool MustStop() {
  Yielder* const yielder = YieldScope::Current();
  if (yielder != nullptr && yielder->may_have_tasks()) yielder->Yield();
  const StopToken* const token = StopScope::Current();
  return token != nullptr && token->stopped();
}

// Returns CANCELLED if the op that the calling thread runs must stop. The engine replaces this
// error by one that has the reason.
inline absl::Status CheckStop() {
  return MustStop() ? absl::CancelledError("the op was stopped") : absl::OkStatus();
}

}  // namespace tensord::server
