// The answers that threads await from the command stream, and the errors that the server reported
// on it.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tensord/common/util/mutex.h"
#include "tensord/v1/tensord.pb.h"

namespace tensord::internal {

// Thread-safe. Answers may arrive in any order. Each error is reported once: by the read that
// returns it, or by Synchronize.
class ReplyTable {
 public:
  using Clock = std::chrono::steady_clock;
  // At most so many errors are kept for Synchronize. Further errors are dropped.
  static constexpr int kMaxErrors = 1024;
  // The limit of remembered errors that were reported. They aren't reported again if the server
  // sends them late or for other handles.
  static constexpr int kMaxReported = 256;

  // Returns a new number for a command that has an answer. Call it before the command is pushed.
  uint64_t Expect();
  // Removes a number whose command wasn't pushed.
  void Remove(uint64_t id);
  // Blocks until the answer has come, and returns it: the elements or the tensor's error, or an
  // empty message for a Barrier. If the stream has ended, returns the reason given to Fail. If the
  // calling thread is interrupted (interruption.h), returns CANCELLED. Call it once per number. Sets
  // `*arrival`, unless null, to the time at which the answer came.
  absl::StatusOr<v1::Elements> Await(uint64_t id, Clock::time_point* arrival = nullptr);

  // Returns whether Await would return at once.
  bool Arrived(uint64_t id) const;
  // Returns whether any expected answer hasn't come.
  bool AnyAwaited() const;

  // Delivers a message from the server. Moves parts out of it.
  void Deliver(v1::SessionStreamResponse* response);
  // Records that the stream has ended: every Await, also a later one, returns `reason`. Only the
  // first call has an effect.
  void Fail(absl::Status reason);

  // Returns the first error that hasn't been reported, or OK. Marks it and equal errors as
  // reported.
  absl::Status TakeError();
  // Marks an error as reported, because another function has returned it.
  void MarkReported(const absl::Status& error);

 private:
  struct Slot {
    CondVar arrived;
    bool done = false;
    v1::Elements elements;
    Clock::time_point arrival;
  };

  void FinishLocked(uint64_t id, v1::Elements* elements) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void MarkReportedLocked(const absl::Status& error) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  mutable Mutex mu_;
  absl::Status failure_ ABSL_GUARDED_BY(mu_);
  uint64_t last_id_ ABSL_GUARDED_BY(mu_) = 0;
  absl::flat_hash_map<uint64_t, std::shared_ptr<Slot>> slots_ ABSL_GUARDED_BY(mu_);
  std::deque<absl::Status> errors_ ABSL_GUARDED_BY(mu_);    // not reported yet
  std::deque<absl::Status> reported_ ABSL_GUARDED_BY(mu_);  // the latest kMaxReported
};

}  // namespace tensord::internal
