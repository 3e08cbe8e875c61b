// Threads for work that may block, such as transfers that wait for a device.
#pragma once

#include <deque>
#include <functional>
#include <thread>
#include <vector>

#include "tensord/common/util/mutex.h"

namespace tensord::server {

// Thread-safe.
class WorkerPool {
 public:
  explicit WorkerPool(int threads);
  ~WorkerPool() { Stop(); }

  // Queues `job` for one of the threads. After Stop(), runs it on the calling thread.
  void Post(std::function<void()> job);

  // Blocks until all posted jobs have run, then ends the threads. Don't call it in a job.
  void Stop();

 private:
  void Run();

  Mutex mu_;
  CondVar wake_;
  std::deque<std::function<void()>> jobs_ ABSL_GUARDED_BY(mu_);
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  std::vector<std::thread> threads_;
};

}  // namespace tensord::server
