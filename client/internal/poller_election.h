// Chooses the thread that polls a stream's events.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

#include "absl/functional/function_ref.h"
#include "tensord/client/internal/reply_table.h"
#include "tensord/client/internal/send_pacing.h"
#include "tensord/common/util/mutex.h"

namespace tensord::internal {

// Elects the one thread that polls (leader and followers). If no thread polls, a thread that waits
// for an answer polls itself: waking it from another thread would double the wait. If no thread
// waits, the stream's background thread polls. After an answer the background thread pauses for
// kPause, because a program that has waited once often waits again soon.
//
//                   a thread waits                       the last waiting thread leaves
//     paused ─────────────────────────▶ waiter polls ───────────────────────────────────▶ paused
//       │                                                                                   ▲
//       │ kPause is over, or Resume                  it has delivered the awaited answer    │
//       └─────────────────────────────▶ background polls ───────────────────────────────────┘
//
// During a pause no thread polls: nothing is received, and only threads that push commands send.
// Thread-safe.
class PollerElection {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr auto kPause = std::chrono::milliseconds(1);

  // `replies` and `pacing` must outlive this object. A pause calls pacing->End(), because no thread
  // would notice the end of its interval.
  PollerElection(const ReplyTable* replies, SendPacing* pacing)
      : replies_(replies), pacing_(pacing) {}

  // Call it on a thread that waits for the answer `reply`. Counts the thread as waiting. If no
  // other thread polls, ends a pause or an interval, and calls `poll` without a lock held. `poll`
  // must send the commands that were held back, and handle one event. Repeats this until the answer
  // has come, another thread polls, the stream has ended, or the thread is interrupted
  // (interruption.h). When the thread no longer waits, it must call FinishWait.
  void PollUntilArrived(uint64_t reply, absl::FunctionRef<void()> poll);
  void FinishWait();
  bool AnyWaiting();

  // Call it on the background thread. Blocks until that thread is elected. If the stream has ended,
  // returns false.
  bool AwaitElection();
  // Call it on the background thread after it has handled an event. Lets another thread poll.
  void Yield();

  // Returns whether the background thread pauses. Takes no lock, so it may be out of date.
  bool paused() const { return paused_.load(); }
  // Ends a pause. Call WakeBackground afterwards, so that the background thread notices it.
  void Resume();
  void WakeBackground() { changed_.Signal(); }

  // Records that the stream has ended: no event will come.
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
