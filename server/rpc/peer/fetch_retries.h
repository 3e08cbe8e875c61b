// Whether, and when, a fetch calls its source again.
#pragma once

#include <algorithm>
#include <chrono>

namespace tensord::server {

// The retries of one fetch. Not thread-safe.
class FetchRetries {
 public:
  using Clock = std::chrono::steady_clock;

  // The source is in reach, as far as is known: of a fetch that begins or whose parts have ended.
  void Restart() { out_of_reach_since_ = Clock::now(); }

  // A call has ended and another may go better. `answered`: whether the source answered it.
  // `bytes`: how many the fetch has brought. Returns whether to call again, because the source has
  // been out of reach for less than `timeout`.
  bool MayRetry(bool answered, int64_t bytes, std::chrono::seconds timeout) {
    const auto now = Clock::now();
    if (answered) {
      out_of_reach_since_ = now;
      ++resumptions_;
      if (bytes > bytes_before_) pause_ = std::chrono::milliseconds(0);
      bytes_before_ = bytes;
    }
    return now - out_of_reach_since_ < timeout;
  }

  // Returns how long to wait before the next call: ever longer while calls bring nothing.
  std::chrono::milliseconds NextPause() {
    pause_ = std::clamp(2 * pause_, kMinPause, kMaxPause);
    return pause_;
  }

  // Returns when a call that isn't answered is given up.
  Clock::time_point GiveUpAt(std::chrono::seconds timeout) const {
    return out_of_reach_since_ + timeout;
  }

  // Returns how many calls went on with what earlier ones had left.
  int resumptions() const { return resumptions_; }

 private:
  static constexpr std::chrono::milliseconds kMinPause{50};
  static constexpr std::chrono::milliseconds kMaxPause{1000};

  Clock::time_point out_of_reach_since_;
  std::chrono::milliseconds pause_{0};
  int64_t bytes_before_ = 0;  // the last call
  int resumptions_ = 0;
};

}  // namespace tensord::server
