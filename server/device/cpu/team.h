// The threads of a CPU device.
#pragma once

#include <cstdint>

#include "absl/functional/function_ref.h"

namespace tensord::server::cpu {

// The number of elements of a cheap elementwise op from which a further thread pays off.
inline constexpr int64_t kGrainElements = 16 * 1024;

// A team of several threads is used only from the device's executor thread. A team of one thread is
// the calling thread, which may be any. The threads are OpenMP's, so that oneDNN and our own loops
// use the same threads. Without OpenMP, everything runs on the calling thread.
class Team {
 public:
  explicit Team(int threads) : threads_(threads < 1 ? 1 : threads) {}

  int threads() const { return threads_; }

  // Makes the calling thread the leader of the team.
  void Bind() const;

  // Calls fn(begin, end) for ranges that together are [0, n), and blocks until all calls have
  // returned. There are at most threads() ranges. All ranges except the last have at least `grain`
  // >= 1 elements and are multiples of `multiple_of` long. fn must not throw.
  void For(int64_t n, int64_t grain, absl::FunctionRef<void(int64_t, int64_t)> fn,
           int64_t multiple_of = 1) const;

  // In a call of fn: returns the index of the running thread in the team, from 0 on.
  static int Current();

 private:
  const int threads_;
};

// While the object exists, libraries that the calling thread calls use `threads` threads in OpenMP
// regions. With one thread, the calling thread computes alone.
class ScopedThreads {
 public:
  explicit ScopedThreads(int threads);
  ~ScopedThreads();
  ScopedThreads(const ScopedThreads&) = delete;
  ScopedThreads& operator=(const ScopedThreads&) = delete;

 private:
  int before_ = 0;  // the number to restore; 0: none
};

}  // namespace tensord::server::cpu
