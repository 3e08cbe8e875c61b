// Decides when to send a message while the program keeps pushing commands.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

namespace tensord::internal {

// If no thread waits for an answer when a message is sent, collects commands for kInterval. Each
// message would wake a thread of the client and one of the server. The polling thread begins the
// interval, and sends the collected commands when it is over.
//
//            Begin                   interval over, or a thread waits for an answer (End)
//     off ──────────▶ collecting ───────────────────────────────────────────────────────▶ off
//
// Thread-safe, except that only the polling thread may call Begin and deadline().
class SendPacing {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr auto kInterval = std::chrono::microseconds(100);
  // If this many commands were collected, they are sent before the interval is over.
  static constexpr int64_t kMaxDelayedCommands = 4096;

  bool collecting() const { return collecting_.load(); }
  // Returns whether `num_unsent` commands must wait for the end of the interval.
  bool ShouldDelay(int64_t num_unsent) const {
    return collecting() && num_unsent < kMaxDelayedCommands;
  }

  void Begin() {
    deadline_ = Clock::now() + kInterval;
    collecting_.store(true);
  }
  void End() { collecting_.store(false); }
  Clock::time_point deadline() const { return deadline_; }

 private:
  std::atomic<bool> collecting_{false};
  Clock::time_point deadline_;
};

}  // namespace tensord::internal
