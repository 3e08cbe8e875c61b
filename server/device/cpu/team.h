// The threads of a CPU device.
#pragma once

#include <cstdint>

#include "absl/functional/function_ref.h"

namespace tensord::server::cpu {

// A grain is the number of units of work that one thread computes in some microseconds. It may be
// less than one unit. With two grains or more, a second thread makes the work faster. This is the
// grain of a cheap elementwise op, in elements.
inline constexpr double kGrainElements = 16 * 1024;

// A team of several threads is used only from the device's executor thread. A team of one thread is
// the calling thread, which may be any thread. The threads are OpenMP's, so that oneDNN and our own
// loops use the same threads. Without OpenMP, everything runs on the calling thread.
class Team {
 public:
  explicit Team(int threads) : threads_(threads < 1 ? 1 : threads) {}

  int threads() const { return threads_; }

  // Makes the calling thread the leader of the team, and starts the team's other threads.
  void Bind() const;

  // A range of units of work, [begin, end).
  using Range = absl::FunctionRef<void(int64_t begin, int64_t end)>;

  // Calls fn for ranges that together are [0, n), and blocks until all calls have returned. All
  // ranges except the last are multiples of `multiple_of` long. If the op must stop
  // (stop_token.h), fewer ranges are computed, or none. The results of the other ranges then have
  // any value: a kernel must not use them as indices or sizes. fn must not throw.
  void For(int64_t n, double grain, Range fn, int64_t multiple_of = 1) const {
    Divide(
        n, grain, [&](int64_t begin, int64_t end) { InPieces(begin, end, grain, fn, multiple_of); },
        multiple_of);
  }

  // Does the same as For(), but calls fn at most once on each thread, and never skips a range. If a
  // range may take long, fn must check the thread's stop token.
  void Divide(int64_t n, double grain, Range fn, int64_t multiple_of = 1) const;

  // Does the same as For(), but on the calling thread, and for the ranges of [begin, end). Call it
  // where one unit of For() may take long.
  static void InPieces(int64_t begin, int64_t end, double grain, Range fn, int64_t multiple_of = 1);

  // Returns the index of the running thread in the team, from 0 on. Call it only in a call of fn.
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
