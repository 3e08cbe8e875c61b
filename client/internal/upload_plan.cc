#include "tensord/client/internal/upload_plan.h"

#include <algorithm>

namespace tensord::internal {
namespace {

// The smallest part. A part costs a call, and a round trip in which its connection sends nothing.
constexpr int64_t kMinPartBytes = 8 << 20;

}  // namespace

void UploadPlan::Restart(int64_t offset) {
  MutexLock lock(&mu_);
  main_begin_ = main_end_ = offset;
  started_ = stopped_ = false;
}

std::optional<ByteRange> UploadPlan::NextChunk() {
  MutexLock lock(&mu_);
  if (main_end_ > main_begin_ && !started_) {
    started_ = true;
    changed_.SignalAll();
  }
  while (true) {
    int64_t end = std::min(main_end_ + kChunkBytes, size_bytes_);
    const Part* reached = nullptr;  // contains the next byte
    for (const Part& part : parts_) {
      if (part.range.begin > main_end_) {
        end = std::min(end, part.range.begin);
      } else if (main_end_ < part.range.end) {
        reached = &part;
      }
    }
    if (reached == nullptr) {
      main_begin_ = main_end_;
      main_end_ = end;
      if (main_begin_ == end) return std::nullopt;
      return ByteRange{main_begin_, end};
    }
    if (reached->sent) {
      main_end_ = reached->range.end;
    } else {
      changed_.Wait(&mu_);
    }
  }
}

bool UploadPlan::AwaitStart() {
  MutexLock lock(&mu_);
  while (!started_ && !stopped_) changed_.Wait(&mu_);
  return !stopped_;
}

std::optional<ByteRange> UploadPlan::TakePart(int connections) {
  MutexLock lock(&mu_);
  const int64_t left_bytes = next_part_end_ - main_end_;
  if (stopped_ || left_bytes < 2 * kMinPartBytes) return std::nullopt;
  // The first parts are large, so that there are few. The last ones are small, so that all
  // connections end together.
  const int64_t part_bytes = std::max(left_bytes / (2 * connections), kMinPartBytes);
  const int64_t end = next_part_end_;
  next_part_end_ -= part_bytes;
  next_part_end_ -= next_part_end_ % kChunkBytes;
  parts_.push_back({{next_part_end_, end}, /*sent=*/false});
  return parts_.back().range;
}

void UploadPlan::EndPart(ByteRange ended, bool sent) {
  MutexLock lock(&mu_);
  const auto part = std::find_if(parts_.begin(), parts_.end(), [&](const Part& candidate) {
    return candidate.range.begin == ended.begin;
  });
  part->sent = sent;
  if (!sent) parts_.erase(part);
  changed_.SignalAll();
}

void UploadPlan::Stop() {
  MutexLock lock(&mu_);
  stopped_ = true;
  changed_.SignalAll();
}

bool UploadPlan::stopped() const {
  MutexLock lock(&mu_);
  return stopped_;
}

int64_t UploadPlan::sent_bytes() const {
  MutexLock lock(&mu_);
  int64_t bytes = main_begin_;
  for (const Part& part : parts_) {
    if (part.sent && part.range.begin >= main_begin_) bytes += part.range.end - part.range.begin;
  }
  return bytes;
}

}  // namespace tensord::internal
