#include "tensord/server/rpc/peer/parallel_fetches.h"

#include <algorithm>
#include <utility>

namespace tensord::server {
namespace {

// A pull is spread if its connection has been measured for kMinWatchTime, kMinSpreadBytes remain,
// and the connection is slower than kFastBytesPerSecond. Above that rate, this machine limits the
// copy, not the connection.
constexpr std::chrono::milliseconds kMinWatchTime{100};
constexpr int64_t kMinSpreadBytes = 32 << 20;
constexpr double kFastBytesPerSecond = 1e9;
// Parts are small, so that the received prefix of the tensor, which readers may wait for, grows
// steadily.
constexpr int64_t kPartBytes = 8 << 20;
constexpr size_t kMaxPartsPerConnection = 2;

}  // namespace

bool ParallelFetches::MaySpeedUp(std::chrono::nanoseconds elapsed, int64_t bytes,
                                 int64_t left_bytes) const {
  if (peers_->connections() < 2) return false;
  if (elapsed < kMinWatchTime || left_bytes < kMinSpreadBytes) return false;
  const double seconds = std::chrono::duration<double>(elapsed).count();
  return static_cast<double>(bytes) < kFastBytesPerSecond * seconds;
}

void ParallelFetches::Start(BufferRef buffer, int64_t received_bytes, int64_t size_bytes) {
  started_ = true;
  buffer_ = std::move(buffer);
  size_bytes_ = size_bytes;
  next_begin_ = received_bytes + kPartBytes;
}

void ParallelFetches::BeginMore(const v1::FetchRequest& request,
                                const std::function<void()>& on_progress) {
  const size_t max_parts = kMaxPartsPerConnection * peers_->connections();
  while (!stopped_ && parts_.size() < max_parts && next_begin_ < size_bytes_) {
    const int64_t begin = next_begin_;
    next_begin_ = std::min(begin + kPartBytes, size_bytes_);
    const int connection = begun_++ % peers_->connections();
    const auto part = std::make_shared<RangeFetch>(peers_, source_address_, connection, buffer_,
                                                   begin, next_begin_, on_progress);
    {
      MutexLock lock(&mu_);
      parts_.push_back(part);
      if (cancelled_) part->Cancel();
    }
    part->Start(request);
  }
}

void ParallelFetches::PopFront() {
  MutexLock lock(&mu_);
  parts_.pop_front();
}

void ParallelFetches::FetchEnd(const v1::FetchRequest& request) {
  const auto end = std::make_shared<RangeFetch>(peers_, source_address_, /*connection=*/0, buffer_,
                                                size_bytes_, size_bytes_, [] {});
  end->Start(request);
}

void ParallelFetches::Cancel() {
  MutexLock lock(&mu_);
  cancelled_ = true;
  for (const std::shared_ptr<RangeFetch>& part : parts_) part->Cancel();
}

void ParallelFetches::Abandon() {
  std::deque<std::shared_ptr<RangeFetch>> parts;
  {
    MutexLock lock(&mu_);
    parts.swap(parts_);
  }
  for (const std::shared_ptr<RangeFetch>& part : parts) part->Abandon();
  buffer_.reset();
}

}  // namespace tensord::server
