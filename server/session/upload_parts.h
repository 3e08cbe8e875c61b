// The parts of an upload: ranges of a promised tensor that other calls than its writer fill, in
// parallel to the writer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tensord/common/util/mutex.h"
#include "tensord/server/device/buffer.h"

namespace tensord::server {

// Bytes `begin` to `end` of a tensor. The call that fills the part owns this object, and keeps it
// at its address from UploadParts::Add() until UploadParts::Complete() or Remove().
struct UploadPart {
  int64_t begin = 0;
  int64_t end = 0;
  // Ends the call. Called at most once, on any thread, with a lock held. Must not block.
  std::function<void()> stop;

 private:
  friend class UploadParts;
  bool copying = false;
  bool dropped = false;
};

// No byte has two writers at once. Active and complete parts don't overlap, and the writer takes
// bytes with ClaimBytes(), which drops parts. A dropped part writes nothing more. Only an open
// upload has active parts.
//
//            Add             Complete
//   (none) ───────▶ active ────────────▶ complete
//                     │ ClaimBytes, Close   │ ClaimBytes: the writer sends the bytes itself
//                     ▼                     │ TakeComplete: they count as received
//                  dropped                  ▼
//                                        (none)
//
// Thread-safe. No function blocks for longer than the lock is held.
class UploadParts {
 public:
  // The maximum of active and complete parts. Adjacent complete parts count as one.
  static constexpr size_t kMaxParts = 16;

  // These are for the upload's writer.

  // Opens the upload: allows parts of `buffer` after its first `received_bytes` bytes.
  void Open(const BufferRef& buffer, int64_t received_bytes);
  // Drops the parts that contain any of the bytes `begin` to `end`. From now on, no part may begin
  // before `end`. If a call still copies bytes of a dropped part, returns false: the writer must
  // not write.
  bool ClaimBytes(int64_t begin, int64_t end);
  // Returns the end of the complete parts that follow byte `received_bytes` without a gap. Removes
  // these parts.
  int64_t TakeComplete(int64_t received_bytes);
  // Drops all active parts, and allows no more until Open(). Keeps complete parts, for the next
  // writer of the same buffer.
  void Close();
  // Calls Close(), removes all parts and releases the buffer.
  void Clear();

  // Returns whether a call still copies bytes of a dropped part. Then no writer may begin.
  bool copying_dropped() const;

  // These are for the calls that fill parts.

  // Adds an active part, whose range isn't empty and is inside the tensor, and returns the buffer.
  // If the upload isn't open, returns ABORTED. If the range overlaps another part or received
  // bytes, returns INVALID_ARGUMENT. If there are too many parts, returns RESOURCE_EXHAUSTED.
  absl::StatusOr<BufferRef> Add(UploadPart* part);
  // Call BeginCopy() before each write to the part's range, and EndCopy() after it. If the part has
  // been dropped, BeginCopy() returns false: the call must not write.
  bool BeginCopy(UploadPart* part);
  void EndCopy(UploadPart* part);
  // Makes the part complete, after all of it was written. If it has been dropped, returns false.
  bool Complete(UploadPart* part);
  // Removes the part. If it has been dropped, does nothing.
  void Remove(UploadPart* part);

 private:
  struct Range {
    int64_t begin;
    int64_t end;
  };

  // Drops the active parts that overlap the range.
  void DropLocked(int64_t begin, int64_t end) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool IsFreeLocked(int64_t begin, int64_t end) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void CloseLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  mutable Mutex mu_;
  bool open_ ABSL_GUARDED_BY(mu_) = false;
  BufferRef buffer_ ABSL_GUARDED_BY(mu_);  // set while there may be parts
  int64_t received_bytes_ ABSL_GUARDED_BY(mu_) = 0;
  std::vector<UploadPart*> active_ ABSL_GUARDED_BY(mu_);
  std::vector<Range> complete_ ABSL_GUARDED_BY(mu_);  // no two of them are adjacent
  int dropped_copies_ ABSL_GUARDED_BY(mu_) = 0;       // dropped parts whose calls still copy
};

}  // namespace tensord::server
