// The parts of a tensor that are fetched side by side, over several connections.
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

// Parts in order and without gaps, of a limited number at a time. Used on the thread of the peers'
// queue, but for Cancel().
class ParallelFetches {
 public:
  // `peers` outlives this object.
  ParallelFetches(Peers* peers, std::string source_address)
      : peers_(peers), source_address_(std::move(source_address)) {}

  // Returns whether parts may speed up a fetch whose connection has brought `bytes` in `elapsed`,
  // with `left_bytes` to go.
  bool MaySpeedUp(std::chrono::nanoseconds elapsed, int64_t bytes, int64_t left_bytes) const;

  // Chooses what the parts bring: the bytes of `buffer`, which the host may write, from about
  // `landed_bytes` on. The first part leaves room for what is on its way by other means. Once.
  void Start(BufferRef buffer, int64_t landed_bytes, int64_t size_bytes);
  bool started() const { return started_; }

  // Begins as many parts as the connections carry. `request`: what is fetched, but for its range.
  // `on_news` runs whenever a part has come further and when it has ended.
  void BeginMore(const v1::FetchRequest& request, const std::function<void()>& on_news);

  // The first part that hasn't been removed. `empty()`: there is none.
  bool empty() const { return parts_.empty(); }
  std::shared_ptr<RangeFetch> front() const { return parts_.front(); }
  void PopFront();
  // Lets no further part begin, because one has failed.
  void StopBeginning() { stopped_ = true; }

  // Fetches nothing, up to the tensor's end: the source then knows that the ticket is used up.
  void FetchEnd(const v1::FetchRequest& request);

  // Has all parts end soon, also those that begin later. Thread-safe.
  void Cancel();
  // Has all parts end soon, without news, and leave the memory alone from here on.
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
  // Written with the lock held, by the queue's thread alone, which reads it without.
  std::deque<std::shared_ptr<RangeFetch>> parts_;
};

}  // namespace tensord::server
