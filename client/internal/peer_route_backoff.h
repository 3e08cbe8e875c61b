// Remembers from which servers a destination couldn't fetch, so that later copies skip these
// routes.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "tensord/common/util/mutex.h"

namespace tensord::internal {

// The routes from source servers to one destination. After a failure, copies skip the route for
// kMinPause. Each further failure doubles the pause, up to kMaxPause. If this program has
// reconnected to either server, the route may work again: the next copy tries it at once.
//
//               RecordFailure                       pause is over: one copy tries
//     usable ─────────────────▶ skipped for a pause ─────────────────────────────▶ probed
//        ▲                          ▲   RecordFailure: the pause doubles              │
//        │                          └─────────────────────────────────────────────────┤
//        └─────────────────────── RecordSuccess ──────────────────────────────────────┘
//
// Thread-safe.
class PeerRouteBackoff {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::seconds kMinPause{30};
  static constexpr std::chrono::seconds kMaxPause{240};

  explicit PeerRouteBackoff(std::function<Clock::time_point()> now = Clock::now)
      : now_(std::move(now)) {}

  // In the following, `source` is the epoch of the source server. `reconnects` is the number of
  // reconnects of both connections before the copy began.

  // Returns the error of an earlier copy if the copy should skip the route. Returns "" if the copy
  // should try the route and record the outcome. When a pause is over, one copy tries the route.
  // Until it has recorded its outcome, or another pause is over, other copies skip the route.
  std::string ReasonToSkip(const std::string& source, int64_t reconnects);
  void RecordFailure(const std::string& source, int64_t reconnects, const std::string& why);
  void RecordSuccess(const std::string& source);

 private:
  struct Route {
    std::string why;
    int64_t reconnects = 0;
    std::chrono::seconds pause{0};
    Clock::time_point pause_ends;
    Clock::time_point next_try;
  };

  const std::function<Clock::time_point()> now_;
  Mutex mu_;
  absl::flat_hash_map<std::string, Route> routes_ ABSL_GUARDED_BY(mu_);  // by source
};

}  // namespace tensord::internal
