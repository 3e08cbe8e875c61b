// Bounds the memory of responses that a principal's clients haven't received.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>

#include "tensord/common/util/mutex.h"

namespace tensord::server {

// The bytes of a large response are acquired before the response is built, and returned when gRPC
// has sent or dropped it. If there is no room, the response waits. Responses get room in the order
// of their requests. Thread-safe.
class ResponseBudget {
 public:
  // Runs `granted` when `bytes` have been acquired: at once, or later on the thread that calls
  // Return(). There is room if at most `limit` bytes are then in use, or if none are in
  // use now.
  void Acquire(int64_t bytes, int64_t limit, std::function<void()> granted);
  void Return(int64_t bytes);

 private:
  struct Waiting {
    int64_t bytes;
    int64_t limit;
    std::function<void()> granted;
  };
  bool FitsLocked(int64_t bytes, int64_t limit) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return used_ == 0 || bytes <= limit - used_;
  }

  Mutex mu_;
  int64_t used_ ABSL_GUARDED_BY(mu_) = 0;
  std::deque<Waiting> waiting_ ABSL_GUARDED_BY(mu_);
};

}  // namespace tensord::server
