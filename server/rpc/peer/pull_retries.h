// Decides whether and when a pull calls its source again.
#pragma once

#include <algorithm>
#include <chrono>

namespace tensord::server {

// The retries of one pull. Not thread-safe.
class PullRetries {
 public:
  using Clock = std::chrono::steady_clock;

  // Treats the source as reachable. Call it when a pull begins, and when its parallel calls end.
  void Restart() { unreachable_since_ = Clock::now(); }

  // Records a failed call. Returns true if the pull may call again: the source was unreachable for
  // less than `timeout`, and answered at most kMaxIdleCalls calls in a row without bytes.
  // `answered` says whether the source answered this call. `bytes` have been received in all calls
  // of the pull.
  bool MayRetry(bool answered, int64_t bytes, std::chrono::seconds timeout) {
    const auto now = Clock::now();
    if (answered) {
      unreachable_since_ = now;
      ++resumptions_;
      ++idle_calls_;
      if (bytes > bytes_before_) {
        pause_ = std::chrono::milliseconds(0);
        idle_calls_ = 0;
      }
      bytes_before_ = bytes;
    }
    return now - unreachable_since_ < timeout && idle_calls_ <= kMaxIdleCalls;
  }

  // Returns how long to wait before the next call. The pause doubles while calls receive no bytes.
  std::chrono::milliseconds NextPause() {
    pause_ = std::clamp(2 * pause_, kMinPause, kMaxPause);
    return pause_;
  }

  // Returns the deadline for the source's answer to a call.
  Clock::time_point Deadline(std::chrono::seconds timeout) const {
    return unreachable_since_ + timeout;
  }

  // Returns how many of the failed calls the source had answered.
  int resumptions() const { return resumptions_; }

 private:
  static constexpr std::chrono::milliseconds kMinPause{50};
  static constexpr std::chrono::milliseconds kMaxPause{1000};
  static constexpr int kMaxIdleCalls = 100;

  Clock::time_point unreachable_since_;
  std::chrono::milliseconds pause_{0};
  int64_t bytes_before_ = 0;  // `bytes` at the last answered call
  int idle_calls_ = 0;        // answered calls in a row without bytes
  int resumptions_ = 0;
};

}  // namespace tensord::server
