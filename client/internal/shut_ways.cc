#include "tensord/client/internal/shut_ways.h"

#include <algorithm>

namespace tensord::internal {

std::string ShutWays::WhyNotTried(const std::string& source, int64_t reconnects) {
  MutexLock lock(&mu_);
  const auto found = ways_.find(source);
  if (found == ways_.end()) return "";
  Way& way = found->second;
  if (way.reconnects != reconnects) {
    ways_.erase(found);
    return "";
  }
  const Clock::time_point now = now_();
  if (now < way.next_try) return way.why;
  way.next_try = now + way.pause;
  return "";
}

void ShutWays::FoundShut(const std::string& source, int64_t reconnects, const std::string& why) {
  const Clock::time_point now = now_();
  MutexLock lock(&mu_);
  Way& way = ways_[source];
  way.why = why;
  // Copies that were on their way together have found out the same.
  if (way.reconnects == reconnects && now < way.pause_ends) return;
  const bool again = way.reconnects == reconnects && way.pause.count() > 0;
  way.pause = again ? std::min(2 * way.pause, kLongestPause) : kFirstPause;
  way.reconnects = reconnects;
  way.pause_ends = way.next_try = now + way.pause;
}

void ShutWays::FoundOpen(const std::string& source) {
  MutexLock lock(&mu_);
  ways_.erase(source);
}

}  // namespace tensord::internal
