// Cuts connections, but lets clients make progress even on a slow machine.
#pragma once

#include <cstdint>

#include "tensord/tests/proxy/delay_proxy.h"

namespace tensord::proxy {

// Cuts a proxy's connections. A cut is without progress if clients have received fewer than
// kMinAnswers answers since the previous cut. After kMaxCutsWithoutProgress such cuts in a row,
// CutAll() cuts again only when clients have received kMinAnswers answers. Not thread-safe. `proxy`
// must outlive this object.
class CutLimiter {
 public:
  explicit CutLimiter(DelayProxy* proxy) : proxy_(proxy) {}

  // Cuts all connections and returns true. If clients must get answers first, does nothing and
  // returns false.
  bool CutAll() {
    const int64_t answers = proxy_->stats().round_trips;
    const bool without_progress = answers - answers_at_cut_ < kMinAnswers;
    if (without_progress && cuts_without_progress_ == kMaxCutsWithoutProgress) return false;
    cuts_without_progress_ = without_progress ? cuts_without_progress_ + 1 : 0;
    answers_at_cut_ = answers;
    proxy_->CutAll();
    return true;
  }

 private:
  static constexpr int kMaxCutsWithoutProgress = 3;
  // The first answer is to the message that attaches.
  static constexpr int64_t kMinAnswers = 4;

  DelayProxy* const proxy_;
  int cuts_without_progress_ = 0;
  int64_t answers_at_cut_ = 0;
};

}  // namespace tensord::proxy
