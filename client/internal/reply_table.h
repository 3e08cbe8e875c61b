// Answers that are awaited on the command stream, and the errors that it reported.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tensord/common/mutex.h"
#include "tensord/v1/tensord.pb.h"

namespace tensord::internal {

// Thread-safe. Answers may come in any order.
class ReplyTable {
 public:
  // Errors kept for Synchronize; what comes while there are so many is dropped.
  static constexpr int kMaxErrors = 1024;
  // Errors remembered as told, so that they aren't told again when the server reports them late or
  // on behalf of other handles.
  static constexpr int kMaxReported = 256;

  // A number for a Fetch or a Barrier that is about to be sent.
  uint64_t Expect();
  // It won't be sent after all.
  void Forget(uint64_t id);
  // Waits for the answer: the tensor, or its error; for a Barrier, nothing. The failure where the
  // stream has ended.
  absl::StatusOr<v1::Elements> Await(uint64_t id);

  // Whether Await would return at once.
  bool Arrived(uint64_t id) const;
  // Whether anything is expected that hasn't come.
  bool AnyAwaited() const;

  // A message from the server.
  void Deliver(v1::SessionStreamResponse* response);
  // The stream has ended: so do all waits, now and later. Only the first reason counts.
  void Fail(absl::Status reason);

  // The first error that hasn't been told yet; OK where there is none. It and what it caused count
  // as told.
  absl::Status TakeError();
  // A read has told this one.
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
  std::deque<absl::Status> errors_ ABSL_GUARDED_BY(mu_);    // not told yet
  std::deque<absl::Status> reported_ ABSL_GUARDED_BY(mu_);  // the latest of them
};

}  // namespace tensord::internal
