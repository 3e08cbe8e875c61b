// Bounds the memory of responses that a principal's clients haven't received.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>

#include "tensord/common/util/mutex.h"

namespace tensord::server {

// Large responses take their bytes before they are built, and return them when gRPC has sent them
// or dropped them. If there is no room, they wait, in order. Thread-safe.
class ResponseBudget {
 public:
  // Runs `granted` when `bytes` have been taken: at once, or later on the thread that calls
  // Return(). There is room if at most `limit` bytes are taken in all, or if no others are.
  void Take(int64_t bytes, int64_t limit, std::function<void()> granted);
  void Return(int64_t bytes);

 private:
  struct Waiting {
    int64_t bytes;
    int64_t limit;
    std::function<void()> granted;
  };
  bool FitsLocked(int64_t bytes, int64_t limit) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return taken_ == 0 || bytes <= limit - taken_;
  }

  Mutex mu_;
  int64_t taken_ ABSL_GUARDED_BY(mu_) = 0;
  std::deque<Waiting> waiting_ ABSL_GUARDED_BY(mu_);
};

}  // namespace tensord::server
