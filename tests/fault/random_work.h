// What programs do, at random, and what the network does to them meanwhile.
#pragma once

#include <atomic>
#include <random>
#include <thread>

#include "absl/status/status.h"
#include "tensord/client/tensord.h"
#include "tensord/tests/proxy/cut_limiter.h"
#include "tensord/tests/proxy/delay_proxy.h"

namespace tensord::fault {

// Does something that a program would do, small or large: a chain of ops, a transfer, a matmul, a
// recorded program, a mistake. INTERNAL, saying what, where the result isn't what a plain
// computation on this side gives; else the client's error.
absl::Status WorkAtRandom(const Device& device, std::minstd_rand& random);

// Cuts, delays, throttles and silences a proxy's connections, until it goes.
class Disturbance {
 public:
  Disturbance(proxy::DelayProxy* proxy, int seed);
  ~Disturbance();
  Disturbance(const Disturbance&) = delete;
  Disturbance& operator=(const Disturbance&) = delete;

  int cuts() const { return cuts_; }

 private:
  void Run(int seed);
  void Disturb(std::minstd_rand& random, proxy::CutLimiter* limiter);

  proxy::DelayProxy* const proxy_;
  std::atomic<bool> done_{false};
  std::atomic<int> cuts_{0};
  std::thread thread_;
};

}  // namespace tensord::fault
