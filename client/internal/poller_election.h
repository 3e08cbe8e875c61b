// Which thread polls a stream's events.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

#include "absl/functional/function_ref.h"
#include "tensord/client/internal/reply_table.h"
#include "tensord/client/internal/send_pacing.h"
#include "tensord/common/util/mutex.h"

namespace tensord::internal {

// Elects the one thread that polls (leader and followers). A thread that waits for an answer polls
// itself, if none does: waking it from another thread would double the wait. Otherwise the stream's
// background thread polls. After an answer the background thread pauses for kPause, because a
// program that has waited once often does so again.
//
//                   a thread waits                       the last waiting thread leaves
//     paused ─────────────────────────▶ waiter polls ───────────────────────────────────▶ paused
//       │                                                                                   ▲
//       │ kPause is over, or Resume                  it has delivered the awaited answer    │
//       └─────────────────────────────▶ background polls ───────────────────────────────────┘
//
// While paused no thread polls: nothing is received, and nothing is sent but by the thread that
// gives commands. Thread-safe.
class PollerElection {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr auto kPause = std::chrono::milliseconds(1);

  // `replies` and `pacing` must outlive this object. A pause ends the collecting of `pacing`, whose
  // end no thread would see.
  PollerElection(const ReplyTable* replies, SendPacing* pacing)
      : replies_(replies), pacing_(pacing) {}

  // For a waiting thread. Counts it as one, and calls `poll` (which handles one event), without a
  // lock held, until the answer `reply` has come, another thread polls, or the stream has ended.
  // Call LeaveWait when the thread has its answer.
  void PollUntilArrived(uint64_t reply, absl::FunctionRef<void()> poll);
  void LeaveWait();
  bool AnyWaiting();

  // For the background thread. Blocks until it is elected; false if the stream has ended.
  bool AwaitElection();
  // It has handled an event: another thread may poll.
  void Yield();

  // Whether the background thread pauses. A glance.
  bool paused() const { return paused_.load(std::memory_order_relaxed); }
  // Ends a pause; WakeBackground has the background thread notice.
  void Resume();
  void WakeBackground() { changed_.Signal(); }

  // No event will come any more.
  void End();

 private:
  void PauseLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const ReplyTable* const replies_;
  SendPacing* const pacing_;
  std::atomic<bool> paused_{false};

  Mutex mu_;
  CondVar changed_;  // for the background thread
  bool polled_ ABSL_GUARDED_BY(mu_) = false;
  bool ended_ ABSL_GUARDED_BY(mu_) = false;
  int waiting_ ABSL_GUARDED_BY(mu_) = 0;
  bool background_sleeps_ ABSL_GUARDED_BY(mu_) = false;  // without a time limit
  Clock::time_point paused_until_ ABSL_GUARDED_BY(mu_);
};

}  // namespace tensord::internal
