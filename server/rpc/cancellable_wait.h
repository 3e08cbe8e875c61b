// A wait that the client may give up.
#pragma once

#include <memory>

#include "tensord/common/mutex.h"

namespace tensord::server {

// Between what a call waits for and its cancellation, one gets the call to go on with or to finish;
// the other must not touch it, which may be gone by then. Copies are one wait. Thread-safe.
class CancellableWait {
 public:
  CancellableWait() : state_(std::make_shared<State>()) {}

  // Starts to wait. False where the call was cancelled before: it is the caller's to finish.
  bool Begin() const {
    MutexLock lock(&state_->mu);
    state_->waiting = !state_->cancelled;
    return state_->waiting;
  }

  // What was waited for has come. True where the call is the caller's to go on with.
  bool End() const {
    MutexLock lock(&state_->mu);
    return Take();
  }

  // The client has cancelled. True where the call is the caller's to finish.
  bool Cancel() const {
    MutexLock lock(&state_->mu);
    state_->cancelled = true;
    return Take();
  }

 private:
  struct State {
    Mutex mu;
    bool waiting ABSL_GUARDED_BY(mu) = false;
    bool cancelled ABSL_GUARDED_BY(mu) = false;
  };

  bool Take() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(state_->mu) {
    const bool taken = state_->waiting;
    state_->waiting = false;
    return taken;
  }

  std::shared_ptr<State> state_;
};

}  // namespace tensord::server
