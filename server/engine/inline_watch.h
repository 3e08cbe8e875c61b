// Finds ops that run inline, but take longer than they should.
#pragma once

#include <time.h>

#include <atomic>
#include <cstdint>

#include "tensord/server/engine/prepared_op.h"

namespace tensord::server {

// A kernel says that it runs inline (PreparedKernel::runs_inline) by an estimate of its cost. If a
// thread holds an InlineLock for more than kMaxNanoseconds, the next 256 runs are measured. An op
// that then takes more than kMaxNanoseconds of processor time twice is posted to the executor from
// then on. So the clock is rarely read, and time in which the thread waits for a processor isn't counted.
// Thread-safe.
class InlineWatch {
 public:
  static constexpr int64_t kMaxNanoseconds = 1'000'000;

  // Call it when an InlineLock has been released that was held for `nanoseconds`.
  void OnLockReleased(int64_t nanoseconds) {
    if (nanoseconds <= kMaxNanoseconds) return;
    runs_to_measure_.store(kMeasuredRuns, std::memory_order_relaxed);
  }

  // Returns the result of `run`, which runs `executable` inline.
  template <typename Run>
  auto Measure(Executable& executable, const Run& run) {
    if (runs_to_measure_.load(std::memory_order_relaxed) <= 0) return run();
    runs_to_measure_.fetch_sub(1, std::memory_order_relaxed);
    const int64_t before = ProcessorTime();
    auto result = run();
    executable.CountRun(/*was_slow=*/ProcessorTime() - before > kMaxNanoseconds);
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
