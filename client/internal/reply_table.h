// The answers that threads await from the command stream, and the errors that the server reported
// on it.
#pragma once

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

// Thread-safe. Answers may arrive in any order. An error is reported once: by the read that returns
// it, or by Synchronize.
class ReplyTable {
 public:
  // Errors kept for Synchronize. More are dropped.
  static constexpr int kMaxErrors = 1024;
  // Reported errors that are remembered, so that they aren't reported again if the server sends
  // them late or for other handles.
  static constexpr int kMaxReported = 256;

  // Returns a new number for a command that is about to be sent and has an answer.
  uint64_t Expect();
  // The command isn't sent after all.
  void Forget(uint64_t id);
  // Blocks until the answer has come, and returns it: the elements, or the tensor's error; for a
  // Barrier an empty message. If the stream has ended, returns the reason of Fail. Call it once per
  // number.
  absl::StatusOr<v1::Elements> Await(uint64_t id);

  // Whether Await would return at once.
  bool Arrived(uint64_t id) const;
  // Whether any answer is expected that hasn't come.
  bool AnyAwaited() const;

  // Delivers a message from the server. May move parts out of it.
  void Deliver(v1::SessionStreamResponse* response);
  // The stream has ended: ends all waits, present and future. Only the first reason counts.
  void Fail(absl::Status reason);

  // Returns the first error that hasn't been reported; OK if there is none. It counts as reported
  // then, together with equal ones.
  absl::Status TakeError();
  // Another function has returned this error.
  void MarkReported(const absl::Status& error);

 private:
  struct Slot {
    CondVar arrived;
    bool done = false;
    v1::Elements fetched;
  };

  void FinishLocked(uint64_t id, v1::Elements* fetched) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void MarkReportedLocked(const absl::Status& error) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  mutable Mutex mu_;
  absl::Status failure_ ABSL_GUARDED_BY(mu_);
  uint64_t last_id_ ABSL_GUARDED_BY(mu_) = 0;
  absl::flat_hash_map<uint64_t, std::shared_ptr<Slot>> slots_ ABSL_GUARDED_BY(mu_);
  std::deque<absl::Status> errors_ ABSL_GUARDED_BY(mu_);    // not reported yet
  std::deque<absl::Status> reported_ ABSL_GUARDED_BY(mu_);  // the latest of them
};

}  // namespace tensord::internal
