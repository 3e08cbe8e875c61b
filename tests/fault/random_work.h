// Random work of a client, and random disturbances of its network.
#pragma once

#include <atomic>
#include <random>
#include <thread>

#include "absl/status/status.h"
#include "tensord/client/tensord.h"
#include "tensord/tests/proxy/cut_limiter.h"
#include "tensord/tests/proxy/delay_proxy.h"

namespace tensord::fault {

// Does one piece of work of random kind and size: a chain of ops, a transfer, a matmul, a recorded
// program, or an invalid op. Computes the same locally. If the results differ, returns INTERNAL
// with a description. If the client fails, returns its error.
absl::Status WorkAtRandom(const Device& device, std::minstd_rand& random);

// Cuts, delays, throttles and holds a proxy's connections at random. The destructor ends this.
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
