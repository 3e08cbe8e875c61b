// Random work of a client, and random faults of its network.
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
absl::Status RunRandomWork(const Device& device, std::minstd_rand& random);

// Cuts, delays, throttles and holds a proxy's connections at random. The destructor ends this.
class RandomFaults {
 public:
  RandomFaults(proxy::DelayProxy* proxy, int seed);
  ~RandomFaults();
  RandomFaults(const RandomFaults&) = delete;
  RandomFaults& operator=(const RandomFaults&) = delete;

  int cuts() const { return cuts_; }

 private:
  void Run(int seed);
  void InjectFault(std::minstd_rand& random, proxy::CutLimiter* limiter);

  proxy::DelayProxy* const proxy_;
  std::atomic<bool> done_{false};
  std::atomic<int> cuts_{0};
  std::thread thread_;
};

}  // namespace tensord::fault
