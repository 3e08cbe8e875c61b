// The outcome of a copy, for Tensor::copy_report.
#pragma once

#include <algorithm>
#include <atomic>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "tensord/client/copy_report.h"
#include "tensord/client/internal/interruption.h"
#include "tensord/common/util/mutex.h"

namespace tensord::internal {

struct TensorState;

// Thread-safe.
class CopyRecord {
 public:
  explicit CopyRecord(bool within_server) : within_server_(within_server) {}

  // Holds the tensor until there is an outcome: the copy must continue, even if the program drops
  // it, because the server needs its elements. Does nothing for a copy within a server.
  void KeepTensor(std::shared_ptr<const TensorState> tensor) {
    if (within_server_ || ended_.load(std::memory_order_relaxed)) return;
    MutexLock lock(&mu_);
    if (!done_) kept_ = std::move(tensor);
  }

  // Sets the outcome. Only the first call has an effect.
  void Finish(absl::StatusOr<CopyReport> outcome) {
    std::shared_ptr<const TensorState> kept;  // destroyed after the lock, because it may hold this
    MutexLock lock(&mu_);
    if (done_) return;
    done_ = true;
    ended_.store(true, std::memory_order_relaxed);
    kept.swap(kept_);
    outcome_ = std::move(outcome);
    if (outcome_.ok()) {
      outcome_->total_time = std::max(absl::Now() - started_, outcome_->transfer_time);
    }
    finished_.SignalAll();
  }

  // Returns whether the copy may still be running. For a copy within a server, returns false.
  bool runs() const { return !within_server_ && !ended_.load(std::memory_order_relaxed); }

  // Blocks until there is an outcome. If the calling thread is interrupted, returns CANCELLED.
  absl::StatusOr<CopyReport> Await() {
    MutexLock lock(&mu_);
    while (!done_ && !Interruption::Interrupted()) WaitOrCheck(&finished_, &mu_);
    if (!done_) return InterruptedError();
    return outcome_;
  }

  // Returns true for a copy between devices of one server. No thread reports its end:
  // Tensor::copy_report waits for the tensor and calls Finish.
  bool within_server() const { return within_server_; }
  absl::Time started() const { return started_; }

 private:
  const bool within_server_;
  const absl::Time started_ = absl::Now();
  Mutex mu_;
  CondVar finished_;
  bool done_ ABSL_GUARDED_BY(mu_) = false;
  std::atomic<bool> ended_{false};  // done_, readable without the lock
  std::shared_ptr<const TensorState> kept_ ABSL_GUARDED_BY(mu_);
  absl::StatusOr<CopyReport> outcome_ ABSL_GUARDED_BY(mu_) = CopyReport();
};

}  // namespace tensord::internal
