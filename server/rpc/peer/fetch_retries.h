// Decides whether and when a fetch calls its source again.
#pragma once

#include <algorithm>
#include <chrono>

namespace tensord::server {

// The retries of one fetch. Not thread-safe.
class FetchRetries {
 public:
  using Clock = std::chrono::steady_clock;

  // Treats the source as reachable. Call it when a fetch begins, and when its parts have ended.
  void Restart() { unreachable_since_ = Clock::now(); }

  // Records a call that has failed, and returns whether to call again: if the source has been
  // unreachable for less than `timeout`, and at most kMaxIdleCalls calls in a row have been answered
  // without bytes. `answered`: whether the source answered the call. `bytes`: how many bytes the
  // fetch has received in all its calls.
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
  Clock::time_point GiveUpAt(std::chrono::seconds timeout) const {
    return unreachable_since_ + timeout;
  }

  // Returns how many answered calls failed, so that a later call had to continue.
  int resumptions() const { return resumptions_; }

 private:
  static constexpr std::chrono::milliseconds kMinPause{50};
  static constexpr std::chrono::milliseconds kMaxPause{1000};
  static constexpr int kMaxIdleCalls = 100;

  Clock::time_point unreachable_since_;
  std::chrono::milliseconds pause_{0};
  int64_t bytes_before_ = 0;  // before the last call
  int idle_calls_ = 0;        // answered calls in a row without bytes
  int resumptions_ = 0;
};

}  // namespace tensord::server
