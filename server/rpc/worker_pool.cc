#include "tensord/server/rpc/worker_pool.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

namespace tensord::server {

WorkerPool::WorkerPool(int threads, int nice)
    : max_running_per_owner_(std::max(threads - 1, 1)), nice_(nice) {
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

void WorkerPool::Post(Owner owner, std::function<void()> job) {
  bool stopped = false;
  {
    MutexLock lock(&mu_);
    stopped = stopping_;
    if (!stopped) {
      Queue& queue = queues_[owner];
      if (queue.jobs.empty()) waiting_owners_.push_back(owner);
      queue.jobs.push_back(std::move(job));
    }
  }
  if (stopped) return job();
  wake_.Signal();
}

std::deque<WorkerPool::Owner>::iterator WorkerPool::FindNextLocked() {
  auto next = waiting_owners_.begin();
  while (next != waiting_owners_.end() && queues_[*next].running >= max_running_per_owner_) ++next;
  return next;
}

void WorkerPool::Run() {
  // On Linux, nice() changes only the calling thread (nice(2), "C library/kernel differences"). If
  // it fails, the thread keeps its priority.
  if (nice_ != 0) (void)nice(nice_);
  MutexLock lock(&mu_);
  while (true) {
    const auto next = FindNextLocked();
    if (next == waiting_owners_.end()) {
      if (stopping_ && waiting_owners_.empty()) return;
      wake_.Wait(&mu_);
      continue;
    }
    const Owner owner = *next;
    waiting_owners_.erase(next);
    Queue& queue = queues_[owner];
    std::function<void()> job = std::move(queue.jobs.front());
    queue.jobs.pop_front();
    if (!queue.jobs.empty()) waiting_owners_.push_back(owner);
    ++queue.running;
    mu_.Unlock();
    job();
    job = nullptr;  // without the lock, because this may run destructors
    mu_.Lock();
    if (--queue.running == 0 && queue.jobs.empty()) queues_.erase(owner);
    // If the end of this job lets another one start, this thread finds it in the next round.
    if (stopping_) wake_.SignalAll();
  }
}

}  // namespace tensord::server
