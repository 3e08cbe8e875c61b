// Finds ops that run inline, but take longer than they should.
#pragma once

#include <time.h>

#include <atomic>
#include <cstdint>

#include "tensord/server/engine/prepared_op.h"

namespace tensord::server {

// PreparedKernel::runs_inline() is an estimate. This class finds ops for which it is wrong. If a
// thread holds an InlineLock for more than kMaxInlineNanoseconds, the next kMeasuredRuns inline
// runs are measured. If two measured runs of an op in a row take more than kMaxInlineNanoseconds of
// processor time, the op is posted to the executor from then on. So the clock is rarely read. Time
// in which the thread waits for a processor doesn't count. Thread-safe.
class InlineWatch {
 public:
  static constexpr int64_t kMaxInlineNanoseconds = 1'000'000;

  // Call it when an InlineLock has been released that was held for `nanoseconds`.
  void OnLockReleased(int64_t nanoseconds) {
    if (nanoseconds <= kMaxInlineNanoseconds) return;
    runs_to_measure_.store(kMeasuredRuns, std::memory_order_relaxed);
  }

  // Returns the result of `run`, which runs `executable` inline.
  template <typename Run>
  auto Measure(Executable& executable, const Run& run) {
    if (runs_to_measure_.load(std::memory_order_relaxed) <= 0) return run();
    runs_to_measure_.fetch_sub(1, std::memory_order_relaxed);
    const int64_t before = ProcessorTime();
    auto result = run();
    executable.CountRun(/*was_slow=*/ProcessorTime() - before > kMaxInlineNanoseconds);
    return result;
  }

  // Returns the processor time of the calling thread in nanoseconds.
  static int64_t ProcessorTime() {
    timespec time = {};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
  }

 private:
  static constexpr int kMeasuredRuns = 256;

  std::atomic<int> runs_to_measure_{0};  // how many of the next runs are measured
};

}  // namespace tensord::server
