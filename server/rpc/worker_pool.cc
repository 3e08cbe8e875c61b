#include "tensord/server/rpc/worker_pool.h"

#include <utility>

namespace tensord::server {

WorkerPool::WorkerPool(int threads) {
  for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { Run(); });
}

void WorkerPool::Stop() {
  {
    MutexLock lock(&mu_);
    stopping_ = true;
  }
  wake_.SignalAll();
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

void WorkerPool::Post(std::function<void()> job) {
  bool stopped = false;
  {
    MutexLock lock(&mu_);
    stopped = stopping_;
    if (!stopped) jobs_.push_back(std::move(job));
  }
  if (stopped) return job();
  wake_.Signal();
}

void WorkerPool::Run() {
  while (true) {
    std::function<void()> job;
    {
      MutexLock lock(&mu_);
      while (jobs_.empty() && !stopping_) wake_.Wait(&mu_);
      if (jobs_.empty()) return;
      job = std::move(jobs_.front());
      jobs_.pop_front();
    }
    job();
  }
}

}  // namespace tensord::server
