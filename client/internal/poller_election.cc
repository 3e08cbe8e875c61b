#include "tensord/client/internal/poller_election.h"

#include "tensord/client/internal/interruption.h"

namespace tensord::internal {

void PollerElection::PollUntilArrived(uint64_t reply, absl::FunctionRef<void()> poll) {
  MutexLock lock(&mu_);
  ++waiting_;
  while (!polled_ && !ended_ && !replies_->Arrived(reply) && !Interruption::Interrupted()) {
    polled_ = true;
    mu_.Unlock();
    pacing_->End();
    paused_.store(false);
    poll();
    mu_.Lock();
    polled_ = false;
  }
}

void PollerElection::FinishWait() {
  bool wake = false;
  {
    MutexLock lock(&mu_);
    // Pauses only if no thread polls. If the background thread polls, it blocks in the queue and
    // couldn't send commands after the pause.
    if (--waiting_ == 0 && !polled_) {
      PauseLocked();
      wake = background_sleeps_;
    } else if (!polled_) {
      paused_until_ = Clock::time_point();  // other threads still wait for their answers
      wake = true;
    }
  }
  if (wake) WakeBackground();
}

bool PollerElection::AnyWaiting() {
  MutexLock lock(&mu_);
  return waiting_ > 0;
}

bool PollerElection::AwaitElection() {
  MutexLock lock(&mu_);
  while (!ended_) {
    const auto left = paused_until_ - Clock::now();
    if (polled_) {
      background_sleeps_ = true;
      changed_.Wait(&mu_);
      background_sleeps_ = false;
    } else if (left > left.zero()) {
      changed_.WaitFor(&mu_, left);
    } else {
      polled_ = true;
      paused_.store(false);
      return true;
    }
  }
  return false;
}

void PollerElection::Yield() {
  MutexLock lock(&mu_);
  polled_ = false;
  // All waiting threads have their answers, and may soon wait again.
  if (waiting_ > 0 && !replies_->AnyAwaited()) PauseLocked();
}

void PollerElection::PauseLocked() {
  paused_until_ = Clock::now() + kPause;
  paused_.store(true);
  pacing_->End();
}

void PollerElection::Resume() {
  MutexLock lock(&mu_);
  paused_until_ = Clock::time_point();
  paused_.store(false);
}

void PollerElection::End() {
  {
    MutexLock lock(&mu_);
    ended_ = true;
  }
  changed_.SignalAll();
}

}  // namespace tensord::internal
