// Threads for work that takes long or may block, such as transfers that wait for a device.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <thread>
#include <utility>
#include <vector>

#include "tensord/common/util/mutex.h"

namespace tensord::server {

// The jobs of one owner start in order, and the pool starts jobs of its owners in rotation. If
// there are two threads or more, one owner's jobs never occupy all of them. So one owner with many
// or long jobs can't block the other owners. Thread-safe.
class WorkerPool {
 public:
  // Identifies the principal that a job runs for. The pool only compares it.
  using Owner = const void*;

  // The threads add `nice` to the process's nice value (setpriority(2)).
  explicit WorkerPool(int threads, int nice = 0);
  ~WorkerPool() { Stop(); }

  // Queues `job` for one of the threads. After Stop(), runs it on the calling thread.
  void Post(Owner owner, std::function<void()> job);

  // Blocks until all posted jobs have run, then ends the threads. Don't call it in a job.
  void Stop();

 private:
  struct Queue {
    std::deque<std::function<void()>> jobs;
    int running = 0;
  };

  void Run();
  // Returns the first of `waiting_owners_` that may start a job, or waiting_owners_.end().
  std::deque<Owner>::iterator FindNextLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const int max_running_per_owner_;
  const int nice_;
  Mutex mu_;
  CondVar wake_;
  std::map<Owner, Queue> queues_ ABSL_GUARDED_BY(mu_);     // of owners that have jobs
  std::deque<Owner> waiting_owners_ ABSL_GUARDED_BY(mu_);  // owners with queued jobs
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  std::vector<std::thread> threads_;
};

}  // namespace tensord::server
