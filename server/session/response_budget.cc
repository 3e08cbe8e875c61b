#include "tensord/server/session/response_budget.h"

#include <utility>
#include <vector>

namespace tensord::server {

void ResponseBudget::Acquire(int64_t bytes, int64_t limit, std::function<void()> granted) {
  {
    MutexLock lock(&mu_);
    if (!waiting_.empty() || !FitsLocked(bytes, limit)) {
      waiting_.push_back({bytes, limit, std::move(granted)});
      return;
    }
    used_ += bytes;
  }
  granted();
}

void ResponseBudget::Return(int64_t bytes) {
  std::vector<std::function<void()>> granted;
  {
    MutexLock lock(&mu_);
    used_ -= bytes;
    while (!waiting_.empty() && FitsLocked(waiting_.front().bytes, waiting_.front().limit)) {
      used_ += waiting_.front().bytes;
      granted.push_back(std::move(waiting_.front().granted));
      waiting_.pop_front();
    }
  }
  for (const auto& run : granted) run();
}

}  // namespace tensord::server
