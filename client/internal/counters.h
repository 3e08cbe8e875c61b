// What a connection has done so far, counted from any thread.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

namespace tensord::internal {

struct Counters {
  std::atomic<int64_t> commands{0};
  std::atomic<int64_t> messages{0};
  std::atomic<int64_t> bytes_uploaded{0};
  std::atomic<int64_t> bytes_downloaded{0};
  std::atomic<int64_t> waits{0};
  std::atomic<int64_t> waited_nanoseconds{0};
};

// Counts one wait for the server, from its making to its end.
class WaitTimer {
 public:
  explicit WaitTimer(Counters* counters)
      : counters_(counters), start_(std::chrono::steady_clock::now()) {}
  ~WaitTimer() {
    const auto waited = std::chrono::steady_clock::now() - start_;
    counters_->waits.fetch_add(1, std::memory_order_relaxed);
    counters_->waited_nanoseconds.fetch_add(std::chrono::nanoseconds(waited).count(),
                                            std::memory_order_relaxed);
  }
  WaitTimer(const WaitTimer&) = delete;
  WaitTimer& operator=(const WaitTimer&) = delete;

 private:
  Counters* counters_;
  std::chrono::steady_clock::time_point start_;
};

}  // namespace tensord::internal
