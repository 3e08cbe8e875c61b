// The time of a simulation: it passes when the simulation says so.
#pragma once

#include <chrono>

namespace tensord::simulation {

// One for the process: simulations run one after another.
class Clock {
 public:
  using Time = std::chrono::steady_clock::time_point;

  static Time Now() { return now_; }  // a server::LeaseClock
  static void Advance(std::chrono::milliseconds time) { now_ += time; }

 private:
  static inline Time now_{};
};

}  // namespace tensord::simulation
