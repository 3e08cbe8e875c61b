// The state of an upload that fills a promised tensor: which call writes it, and what is left when
// that call ends early.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "tensord/common/util/mutex.h"
#include "tensord/server/device/buffer.h"
#include "tensord/server/device/memory_account.h"

namespace tensord::server {

// An upload that ended early: the memory, if any was taken, and how much of it has been written.
struct PartialUpload {
  BufferRef buffer;
  int64_t written_bytes = 0;
  UsageHold in_flight;  // counts the upload against the principal's limit
};

// The first `bytes` of `buffer` have been written. No buffer: nothing has been reported.
struct ReceivedPart {
  BufferRef buffer;
  int64_t bytes = 0;
};

// One per tensor that is promised for an upload. The tensor owns it.
//
//   +-----------+  Claim   +--------+  Finish  +------+
//   | ANNOUNCED |--------->| ACTIVE |--------->| DONE |
//   +-----------+          +--------+          +------+
//         |                 |      ^            ^    ^
//         |            Park |      | Claim      |    |
//         |                 v      |            |    |
//         |                +--------+  Finish   |    |
//         |                | PARKED |-----------+    |
//         |                +--------+                |
//         +------------------------------------------+
//                        Finish
//
// | state     | what it means                    | owner of the memory                       |
// |-----------|----------------------------------|-------------------------------------------|
// | ANNOUNCED | no call has written anything     | nothing has been allocated                |
// | ACTIVE    | one call, the writer, claimed it | the writer, after it has allocated; this  |
// |           |                                  | object shares what the writer reported    |
// | PARKED    | the writer ended early           | this object                               |
// | DONE      | the tensor is done or failed     | the tensor, unless it failed              |
//
// Illegal calls change nothing: Claim() of an upload that is ACTIVE returns nullopt, and Park() and
// ReportReceived() of one that is not ACTIVE drop what they are given.
//
// Thread-safe. One lock, `mu_`, guards all of it. Only `stop` is called with that lock held;
// waiters run without it, on the thread whose call makes them due.
class UploadState {
 public:
  using Waiter = std::function<void()>;

  UploadState() = default;
  // Calls `stop` if the upload is ACTIVE: no object refers to the tensor any more.
  ~UploadState();
  UploadState(const UploadState&) = delete;
  UploadState& operator=(const UploadState&) = delete;

  // ANNOUNCED or PARKED → ACTIVE: makes the caller the writer and returns what was parked, which is
  // empty if nothing was. If another writer is active, returns nullopt.
  // If the upload was ANNOUNCED or PARKED when the tensor failed, the first Claim() after that
  // returns an empty PartialUpload, so that its caller reports the tensor's error. Later ones
  // return nullopt.
  // The upload calls `stop` to abort the writer: from any thread, with the lock held, until Park()
  // or Finish(). `stop` must not block or call back into the upload. It may be empty.
  std::optional<PartialUpload> Claim(std::function<void()> stop);

  // ACTIVE → PARKED: keeps `partial` for the next writer and runs the waiters of Abort().
  // If GiveUp() was called meanwhile, keeps nothing and returns false: the caller must fail the
  // tensor.
  bool Park(PartialUpload partial);

  // Says that no writer can claim the upload any more. If none is ACTIVE, claims it and returns
  // true: the caller must fail the tensor. If one is ACTIVE, that writer may still finish; if it
  // parks instead, Park() returns false. If DONE, returns false.
  bool GiveUp();

  // Aborts the active writer, if any, and runs `resting` when the writer has parked or the upload
  // is DONE. If no writer is active, or its `stop` is empty, runs `resting` at once.
  void Abort(Waiter resting);

  // For the writer, if the host can access the memory: the first `bytes` of `buffer` have been
  // written, and may be sent on. Runs the waiters of WhenReceived() that are due.
  void ReportReceived(const BufferRef& buffer, int64_t bytes);

  // Returns what was reported last. If the upload is DONE, returns an empty part.
  ReceivedPart received() const;

  // Runs `waiter` when more than `bytes` have been reported or the upload is DONE: at once if that
  // is so already.
  void WhenReceived(int64_t bytes, Waiter waiter);

  // Returns how many bytes have been written, if the upload is PARKED, and else 0.
  int64_t parked_bytes() const;

  // Any state → DONE: lets go of the memory and of `stop`. Returns the waiters of WhenReceived()
  // and Abort(), for the caller to run. The tensor calls it once, after it has become done.
  std::vector<Waiter> Finish();

 private:
  enum class State { kAnnounced, kActive, kParked, kDone };

  struct ByteWaiter {
    int64_t bytes;
    Waiter waiter;
  };

  bool claimable() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return state_ == State::kAnnounced || state_ == State::kParked;
  }

  mutable Mutex mu_;
  State state_ ABSL_GUARDED_BY(mu_) = State::kAnnounced;
  bool given_up_ ABSL_GUARDED_BY(mu_) = false;
  bool done_unclaimed_ ABSL_GUARDED_BY(mu_) = false;  // DONE, and the next Claim() succeeds
  std::function<void()> stop_ ABSL_GUARDED_BY(mu_);   // of the active writer
  PartialUpload partial_ ABSL_GUARDED_BY(mu_);        // while PARKED
  ReceivedPart received_ ABSL_GUARDED_BY(mu_);        // until DONE
  std::vector<Waiter> resting_ ABSL_GUARDED_BY(mu_);  // of Abort()
  std::vector<ByteWaiter> byte_waiters_ ABSL_GUARDED_BY(mu_);
};

}  // namespace tensord::server
