// The clock of a simulation. Each world resets it, and only Advance() moves it.
#pragma once

#include <chrono>

namespace tensord::simulation {

// One for the process: simulations run one after another.
class Clock {
 public:
  using Time = std::chrono::steady_clock::time_point;

  static Time Now() { return now_; }  // a server::LeaseClock
  static void Reset() { now_ = Time(); }
  static void Advance(std::chrono::milliseconds time) { now_ += time; }

 private:
  static inline Time now_{};
};

}  // namespace tensord::simulation
