// Cuts that leave clients time to make progress, however slow the machine is.
#pragma once

#include <cstdint>

#include "tensord/tests/proxy/delay_proxy.h"

namespace tensord::proxy {

// Cuts a proxy's connections. A cut is fruitless if clients have got fewer than kMinTurns answers
// since the cut before it. After kMaxFruitlessCuts in a row, clients get that many answers before
// the next cut. For one thread. `proxy` outlives it.
class CutPace {
 public:
  explicit CutPace(DelayProxy* proxy) : proxy_(proxy) {}

  // Cuts all connections. If clients are to get answers first, does nothing and returns false.
  bool CutAll() {
    const int64_t turns = proxy_->stats().turns;
    const bool fruitless = turns - turns_at_cut_ < kMinTurns;
    if (fruitless && fruitless_cuts_ == kMaxFruitlessCuts) return false;
    fruitless_cuts_ = fruitless ? fruitless_cuts_ + 1 : 0;
    turns_at_cut_ = turns;
    proxy_->CutAll();
    return true;
  }

 private:
  static constexpr int kMaxFruitlessCuts = 3;
  // The first answer is to the message that attaches.
  static constexpr int64_t kMinTurns = 4;

  DelayProxy* const proxy_;
  int fruitless_cuts_ = 0;
  int64_t turns_at_cut_ = 0;
};

}  // namespace tensord::proxy
