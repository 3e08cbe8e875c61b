// The threads of a CPU device.
#pragma once

#include <cstdint>

#include "absl/functional/function_ref.h"

namespace tensord::server::cpu {

// Elements of a cheap elementwise op that are worth a thread of their own.
inline constexpr int64_t kGrainElements = 16 * 1024;

// Used from the device's executor thread alone. The threads are OpenMP's, so that oneDNN and our
// own loops use the same ones; without OpenMP everything runs on the caller.
class Team {
 public:
  explicit Team(int threads) : threads_(threads < 1 ? 1 : threads) {}

  int threads() const { return threads_; }

  // Makes the calling thread the one that leads the team.
  void Bind() const;

  // Calls fn(begin, end) for ranges that together are [0, n), at most one for each thread and none
  // shorter than `grain` >= 1 unless n is; returns when all are done. Ranges other than the last
  // are multiples of `multiple_of` long. fn must not throw.
  void For(int64_t n, int64_t grain, absl::FunctionRef<void(int64_t, int64_t)> fn,
           int64_t multiple_of = 1) const;

  // Within For(): which of the team's threads is running, from 0 on.
  static int Current();

 private:
  const int threads_;
};

// While it exists, OpenMP regions of libraries that the calling thread calls use `threads` threads.
// With one, the caller computes alone, and may be any thread.
class ScopedThreads {
 public:
  explicit ScopedThreads(int threads);
  ~ScopedThreads();
  ScopedThreads(const ScopedThreads&) = delete;
  ScopedThreads& operator=(const ScopedThreads&) = delete;

 private:
  int before_ = 0;  // 0: nothing to restore
};

}  // namespace tensord::server::cpu
