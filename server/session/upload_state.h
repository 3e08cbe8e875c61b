// The state of an upload that fills a promised tensor: which call writes the tensor, and which
// bytes are kept if that call ends early.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "tensord/common/util/mutex.h"
#include "tensord/server/device/buffer.h"
#include "tensord/server/device/memory_account.h"
#include "tensord/server/session/upload_parts.h"

namespace tensord::server {

class Tensor;

// An upload that ended early: the memory, if any was allocated, and how many of its bytes have been
// written.
struct PartialUpload {
  BufferRef buffer;
  int64_t written_bytes = 0;
  Charge in_flight;  // counts the upload against the principal's limit
};

// The first `bytes` bytes of `buffer` have been written. If nothing was reported, `buffer` is null.
struct ReceivedPart {
  BufferRef buffer;
  int64_t bytes = 0;
};

// Each tensor that is promised for an upload (Tensor::ForUpload) owns one of these objects.
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
// Illegal calls change nothing: Claim() of an ACTIVE upload returns nullopt. If the upload is not
// ACTIVE, Park() and ReportReceived() drop their arguments.
//
// While ACTIVE, the writer may let other calls fill parts of the memory (parts()). Park() closes
// them, and Finish() removes them.
//
// Thread-safe. One lock, `mu_`, guards all except the parts. Only `stop` is called with it held.
// Waiters run without the lock, on the thread whose call makes them due. While a function of this
// object runs, its caller must hold a reference to the tensor.
class UploadState {
 public:
  using Waiter = std::function<void()>;

  // `tensor` owns this object.
  explicit UploadState(Tensor* tensor) : tensor_(tensor) {}
  // Calls `stop` if the upload is ACTIVE: no object refers to the tensor any more.
  ~UploadState();
  UploadState(const UploadState&) = delete;
  UploadState& operator=(const UploadState&) = delete;

  // ANNOUNCED or PARKED → ACTIVE: makes the caller the writer and returns the parked upload. If
  // nothing was parked, returns an empty PartialUpload. If another writer is active, or a call
  // still copies bytes of a dropped part, returns nullopt.
  // If the upload was ANNOUNCED or PARKED when the tensor failed, the next Claim() returns an empty
  // PartialUpload. So the caller of that Claim() reports the tensor's error. Later calls return
  // nullopt.
  // The upload calls `stop` to abort the writer: from any thread, with the lock held, until Park()
  // or Finish(). `stop` must not block or call back into the upload. It may be empty.
  std::optional<PartialUpload> Claim(std::function<void()> stop);

  // ACTIVE → PARKED: keeps `partial` for the next writer and runs the waiters of Abort().
  // If Abandon() was called meanwhile, keeps nothing and fails the tensor.
  void Park(PartialUpload partial);

  // Records that no later writer can claim the upload, because the tensor's handle was deleted. If
  // the upload is ANNOUNCED or PARKED, fails the tensor. If a writer is active, it may still
  // finish; if it parks instead, Park() fails the tensor.
  void Abandon();
  // Returns whether Abandon() was called.
  bool abandoned() const;

  // Fails the tensor with `error`, even if a writer is active. No later writer can claim the
  // upload. If the tensor is done already, does nothing.
  void Fail(const absl::Status& error);

  // Aborts the active writer, if any, and runs `on_inactive` when the writer has parked or the
  // upload is DONE. If no writer is active, or its `stop` is empty, runs `on_inactive` at once.
  void Abort(Waiter on_inactive);

  // Reports that the first `bytes` bytes of `buffer` have been written and may be forwarded. Only
  // the active writer calls it, and only if the host can access the memory. Runs the waiters of
  // WhenReceived() that are due.
  void ReportReceived(const BufferRef& buffer, int64_t bytes);

  // Returns what was reported last. If the upload is DONE, returns an empty part.
  ReceivedPart received() const;

  // Runs `waiter` when more than `bytes` bytes have been reported or the upload is DONE. If the
  // condition already holds, runs it at once.
  void WhenReceived(int64_t bytes, Waiter waiter);

  UploadParts& parts() { return parts_; }

  // If the upload is PARKED, returns how many bytes have been written. Otherwise returns 0.
  int64_t parked_bytes() const;

  // Any state → DONE: releases the memory and `stop`. Returns the waiters of WhenReceived() and
  // Abort(). The caller runs them. The tensor calls this once, after it has become done.
  std::vector<Waiter> Finish();

 private:
  enum class State { kAnnounced, kActive, kParked, kDone };

  struct ByteWaiter {
    int64_t bytes;
    Waiter waiter;
  };

  // Fails the tensor with the error of a deleted handle.
  void FailAbandoned();

  bool claimable() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return state_ == State::kAnnounced || state_ == State::kParked;
  }

  Tensor* const tensor_;
  mutable Mutex mu_;
  State state_ ABSL_GUARDED_BY(mu_) = State::kAnnounced;
  bool abandoned_ ABSL_GUARDED_BY(mu_) = false;
  bool done_unclaimed_ ABSL_GUARDED_BY(mu_) = false;  // DONE, and the next Claim() succeeds
  std::function<void()> stop_ ABSL_GUARDED_BY(mu_);   // of the active writer
  PartialUpload partial_ ABSL_GUARDED_BY(mu_);        // while PARKED
  ReceivedPart received_ ABSL_GUARDED_BY(mu_);        // until DONE
  std::vector<Waiter> inactive_waiters_ ABSL_GUARDED_BY(mu_);  // of Abort()
  std::vector<ByteWaiter> byte_waiters_ ABSL_GUARDED_BY(mu_);
  UploadParts parts_;
};

}  // namespace tensord::server
