#include "tensord/server/session/upload_parts.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"

namespace tensord::server {
namespace {

template <typename Range>
bool Overlaps(const Range& range, int64_t begin, int64_t end) {
  return range.begin < end && begin < range.end;
}

}  // namespace

void UploadParts::Open(const BufferRef& buffer, int64_t received_bytes) {
  MutexLock lock(&mu_);
  if (buffer_ != buffer) complete_.clear();
  buffer_ = buffer;
  received_bytes_ = received_bytes;
  open_ = true;
}

bool UploadParts::ClaimBytes(int64_t begin, int64_t end) {
  MutexLock lock(&mu_);
  received_bytes_ = end;
  DropLocked(begin, end);
  complete_.erase(std::remove_if(complete_.begin(), complete_.end(),
                                 [&](const Range& range) { return Overlaps(range, begin, end); }),
                  complete_.end());
  return dropped_copies_ == 0;
}

int64_t UploadParts::TakeComplete(int64_t received_bytes) {
  MutexLock lock(&mu_);
  const auto next = std::find_if(complete_.begin(), complete_.end(),
                                 [&](const Range& range) { return range.begin == received_bytes; });
  if (next == complete_.end()) return received_bytes;
  received_bytes_ = next->end;
  complete_.erase(next);
  return received_bytes_;
}

void UploadParts::CloseLocked() {
  open_ = false;
  DropLocked(0, std::numeric_limits<int64_t>::max());
}

void UploadParts::Close() {
  MutexLock lock(&mu_);
  CloseLocked();
}

void UploadParts::Clear() {
  BufferRef released;  // outlives the lock: it may be the last reference to the memory
  MutexLock lock(&mu_);
  CloseLocked();
  complete_ = {};
  std::swap(released, buffer_);
}

bool UploadParts::copying_dropped() const {
  MutexLock lock(&mu_);
  return dropped_copies_ > 0;
}

absl::StatusOr<BufferRef> UploadParts::Add(UploadPart* part) {
  const int64_t begin = part->begin;
  const int64_t end = part->end;
  const auto range = [&] { return absl::StrCat("the part of bytes ", begin, " to ", end); };
  MutexLock lock(&mu_);
  if (!open_) {
    return absl::AbortedError(
        absl::StrCat(range(), " is refused: no resumable Write of the tensor is active"));
  }
  if (begin < received_bytes_) {
    return absl::InvalidArgumentError(absl::StrCat(range(), " is refused: ", received_bytes_,
                                                   " bytes have been received already"));
  }
  if (!IsFreeLocked(begin, end)) {
    return absl::InvalidArgumentError(absl::StrCat(range(), " overlaps another part"));
  }
  if (active_.size() + complete_.size() >= kMaxParts) {
    return absl::ResourceExhaustedError(absl::StrCat(range(), " is refused: the upload has ",
                                                     kMaxParts, " parts; send larger ones"));
  }
  active_.push_back(part);
  return buffer_;
}

bool UploadParts::BeginCopy(UploadPart* part) {
  MutexLock lock(&mu_);
  part->copying = !part->dropped;
  return part->copying;
}

void UploadParts::EndCopy(UploadPart* part) {
  MutexLock lock(&mu_);
  part->copying = false;
  if (part->dropped) --dropped_copies_;
}

bool UploadParts::Complete(UploadPart* part) {
  MutexLock lock(&mu_);
  if (part->dropped) return false;
  active_.erase(std::find(active_.begin(), active_.end(), part));
  Range joined = {part->begin, part->end};
  const auto adjacent = [&](const Range& range) {
    if (range.end != joined.begin && range.begin != joined.end) return false;
    joined = {std::min(range.begin, joined.begin), std::max(range.end, joined.end)};
    return true;
  };
  for (size_t i = complete_.size(); i-- > 0;) {
    if (adjacent(complete_[i])) complete_.erase(complete_.begin() + static_cast<ptrdiff_t>(i));
  }
  complete_.push_back(joined);
  return true;
}

void UploadParts::Remove(UploadPart* part) {
  MutexLock lock(&mu_);
  if (!part->dropped) active_.erase(std::find(active_.begin(), active_.end(), part));
}

void UploadParts::DropLocked(int64_t begin, int64_t end) {
  for (size_t i = active_.size(); i-- > 0;) {
    UploadPart* const part = active_[i];
    if (!Overlaps(*part, begin, end)) continue;
    part->dropped = true;
    if (part->copying) ++dropped_copies_;
    part->stop();
    active_.erase(active_.begin() + static_cast<ptrdiff_t>(i));
  }
}

bool UploadParts::IsFreeLocked(int64_t begin, int64_t end) const {
  return std::none_of(active_.begin(), active_.end(),
                      [&](const UploadPart* part) { return Overlaps(*part, begin, end); }) &&
         std::none_of(complete_.begin(), complete_.end(),
                      [&](const Range& range) { return Overlaps(range, begin, end); });
}

}  // namespace tensord::server
