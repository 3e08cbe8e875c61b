// Which ways from other servers were found shut, so that not every copy finds it out anew.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "tensord/common/mutex.h"

namespace tensord::internal {

// Of one destination. A way that was found shut isn't tried for kFirstPause, and after each further
// vain try for twice as long as before it, up to kLongestPause. Where a connection to either server
// was made anew, the way may be another: it is tried at once. Thread-safe.
class ShutWays {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::seconds kFirstPause{30};
  static constexpr std::chrono::seconds kLongestPause{240};

  explicit ShutWays(std::function<Clock::time_point()> now = Clock::now) : now_(std::move(now)) {}

  // `source` is a server's epoch, `reconnects` how often both connections have been made anew, as
  // of the copy's beginning. Why the copy needn't try the way; empty where it is to try, and to
  // tell by the calls below how that went: once a pause is over one copy tries, and the others go
  // on as before until it tells.
  std::string WhyNotTried(const std::string& source, int64_t reconnects);
  void FoundShut(const std::string& source, int64_t reconnects, const std::string& why);
  void FoundOpen(const std::string& source);

 private:
  struct Way {
    std::string why;
    int64_t reconnects = 0;
    std::chrono::seconds pause{0};
    Clock::time_point pause_ends;
    Clock::time_point next_try;
  };

  const std::function<Clock::time_point()> now_;
  Mutex mu_;
  absl::flat_hash_map<std::string, Way> ways_ ABSL_GUARDED_BY(mu_);  // by source
};

}  // namespace tensord::internal
