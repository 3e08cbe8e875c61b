// When a message of commands goes out while the program goes on giving commands.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

namespace tensord::internal {

// Collects commands for kInterval after a message that no thread waited for, because each message
// wakes a thread at both ends. The polling thread begins the interval and sends what was collected
// when it is over.
//
//            Begin                   interval over, or a thread waits for an answer (End)
//     off ──────────▶ collecting ───────────────────────────────────────────────────────▶ off
//
// Thread-safe, but Begin and deadline() are for the polling thread.
class SendPacing {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr auto kInterval = std::chrono::microseconds(100);
  // So many commands go out before the interval is over.
  static constexpr int64_t kMaxHeldCommands = 4096;

  bool collecting() const { return collecting_.load(std::memory_order_relaxed); }
  // Whether `untaken` commands wait for more.
  bool Holds(int64_t untaken) const { return collecting() && untaken < kMaxHeldCommands; }

  void Begin() {
    deadline_ = Clock::now() + kInterval;
    collecting_.store(true, std::memory_order_relaxed);
  }
  void End() { collecting_.store(false, std::memory_order_relaxed); }
  Clock::time_point deadline() const { return deadline_; }

 private:
  std::atomic<bool> collecting_{false};
  Clock::time_point deadline_;
};

}  // namespace tensord::internal
