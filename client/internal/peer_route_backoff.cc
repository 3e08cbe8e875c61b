#include "tensord/client/internal/peer_route_backoff.h"

#include <algorithm>

namespace tensord::internal {

std::string PeerRouteBackoff::ReasonToSkip(const std::string& source, int64_t reconnects) {
  MutexLock lock(&mu_);
  const auto found = routes_.find(source);
  if (found == routes_.end()) return "";
  Route& route = found->second;
  if (route.reconnects != reconnects) {
    routes_.erase(found);
    return "";
  }
  const Clock::time_point now = now_();
  if (now < route.next_try) return route.why;
  route.next_try = now + route.pause;
  return "";
}

void PeerRouteBackoff::RecordFailure(const std::string& source, int64_t reconnects,
                                     const std::string& why) {
  const Clock::time_point now = now_();
  MutexLock lock(&mu_);
  Route& route = routes_[source];
  route.why = why;
  // Copies that were under way at the same time fail for the same reason.
  if (route.reconnects == reconnects && now < route.pause_ends) return;
  const bool again = route.reconnects == reconnects && route.pause.count() > 0;
  route.pause = again ? std::min(2 * route.pause, kMaxPause) : kMinPause;
  route.reconnects = reconnects;
  route.pause_ends = route.next_try = now + route.pause;
}

void PeerRouteBackoff::RecordSuccess(const std::string& source) {
  MutexLock lock(&mu_);
  routes_.erase(source);
}

}  // namespace tensord::internal
