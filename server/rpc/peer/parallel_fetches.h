// The parts of a tensor that are fetched in parallel, over several connections.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>

#include "tensord/common/util/mutex.h"
#include "tensord/server/device/buffer.h"
#include "tensord/server/rpc/peer/peers.h"
#include "tensord/server/rpc/peer/range_fetch.h"

namespace tensord::server {

// The parts are in order and without gaps. Only a limited number is under way at a time. Only the
// thread of the peers' queue uses this object, except for Cancel().
class ParallelFetches {
 public:
  // `peers` outlives this object.
  ParallelFetches(Peers* peers, std::string source_address)
      : peers_(peers), source_address_(std::move(source_address)) {}

  // Returns whether parts may speed up a pull whose connection has received `bytes` bytes in
  // `elapsed` and of which `left_bytes` bytes remain.
  bool MaySpeedUp(std::chrono::nanoseconds elapsed, int64_t bytes, int64_t left_bytes) const;

  // Sets the range of the parts: the bytes of `buffer`, which the host may write, from one part
  // after `received_bytes` to `size_bytes`. The call under way receives the bytes before the first
  // part. Call it once.
  void Start(BufferRef buffer, int64_t received_bytes, int64_t size_bytes);
  bool started() const { return started_; }

  // Begins parts until the connections carry as many as they may. `request` needs no range.
  // `on_progress` runs when a part has received bytes and when it has ended.
  void BeginMore(const v1::FetchRequest& request, const std::function<void()>& on_progress);

  // The following three give access to the parts that have begun and haven't been removed, in
  // order.
  bool empty() const { return parts_.empty(); }
  std::shared_ptr<RangeFetch> front() const { return parts_.front(); }
  void PopFront();
  // Makes BeginMore() do nothing. Call it when a part has failed.
  void StopStartingParts() { stopped_ = true; }

  // Fetches an empty range at the tensor's end. The source then knows that the tensor has been
  // fetched, and drops the ticket's reference.
  void FetchEnd(const v1::FetchRequest& request);

  // Cancels all parts, including those that begin later. Thread-safe.
  void Cancel();
  // Cancels and removes all parts. From now on, they neither run `on_progress` nor write to the
  // buffer.
  void Abandon();

  // Returns how many parts have begun.
  int begun() const { return begun_; }

 private:
  Peers* const peers_;
  const std::string source_address_;
  BufferRef buffer_;
  int64_t size_bytes_ = 0;
  int64_t next_begin_ = 0;
  int begun_ = 0;
  bool started_ = false;
  bool stopped_ = false;

  Mutex mu_;
  bool cancelled_ ABSL_GUARDED_BY(mu_) = false;
  // Only the queue's thread writes it, with the lock held. That thread reads it without the lock.
  std::deque<std::shared_ptr<RangeFetch>> parts_;
};

}  // namespace tensord::server
