// A few threads for what may block: transfers that wait for a device.
#pragma once

#include <deque>
#include <functional>
#include <thread>
#include <vector>

#include "tensord/common/util/mutex.h"

namespace tensord::server {

// Thread-safe. Destroying it runs what was posted, then joins.
class WorkerPool {
 public:
  explicit WorkerPool(int threads);
  ~WorkerPool();

  void Post(std::function<void()> job);

 private:
  void Run();

  Mutex mu_;
  CondVar wake_;
  std::deque<std::function<void()>> jobs_ ABSL_GUARDED_BY(mu_);
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  std::vector<std::thread> threads_;
};

}  // namespace tensord::server
