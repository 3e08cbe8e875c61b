// The clock of a simulation. Each world resets it. Only Advance() moves it.
#pragma once

#include <chrono>

namespace tensord::simulation {

// The process has one clock, because simulations run one after another.
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
