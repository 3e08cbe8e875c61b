#include "tensord/server/device/executor.h"

#include <algorithm>
#include <utility>

namespace tensord::server {

class Executor::Lane {
 public:
  std::deque<Task> tasks;  // guarded by the executor's mu_
  bool queued = false;     // whether the executor's ready_ holds this lane
};

Executor::Executor(Device* device, Threading threading) : device_(device) {
  if (threading == Threading::kOwnThread) {
    thread_ = std::thread([this] { Run(); });
  } else {
    device_->BindThread();
  }
}

Executor::~Executor() {
  if (!thread_.joinable()) {
    while (RunTurn()) {
    }
    return;
  }
  {
    MutexLock lock(&mu_);
    stopping_ = true;
  }
  wake_.SignalAll();
  thread_.join();
}

std::shared_ptr<Executor::Lane> Executor::NewLane() { return std::make_shared<Lane>(); }

void Executor::Post(const std::shared_ptr<Lane>& lane, Task task) {
  bool wake = false;
  {
    MutexLock lock(&mu_);
    lane->tasks.push_back(std::move(task));
    if (!lane->queued) {
      lane->queued = true;
      wake = ready_.empty();
      contended_.store(true, std::memory_order_relaxed);
      ready_.push_back(lane);
    }
  }
  if (wake) wake_.Signal();
}

bool Executor::TryEnter() {
  MutexLock lock(&mu_);
  if (!ready_.empty()) return false;
  if (entered_) {
    // Somebody else's turn isn't long: that is what it is for. First come, first served, or whoever
    // has much to do would come back before the others wake up.
    bool mine = false;
    turns_.push_back(&mine);
    while (!mine && ready_.empty()) left_.Wait(&mu_);
    if (!mine) {
      turns_.erase(std::find(turns_.begin(), turns_.end(), &mine));
      return false;
    }
  } else if (running_) {
    return false;
  }
  entered_ = running_ = true;
  contended_.store(false, std::memory_order_relaxed);
  return true;
}

void Executor::Leave() {
  bool work = false;
  {
    MutexLock lock(&mu_);
    work = !ready_.empty();
    if (!work && !turns_.empty()) {
      *turns_.front() = true;  // entered_ stays, on behalf of the next
      turns_.pop_front();
    } else {
      entered_ = running_ = false;
      if (!work) idle_.SignalAll();
    }
  }
  if (work) wake_.Signal();
  left_.SignalAll();
}

bool Executor::Drain() {
  bool had_work = false;
  const bool by_hand = !thread_.joinable();
  while (by_hand && RunTurn()) had_work = true;
  {
    MutexLock lock(&mu_);
    while (running_ || !ready_.empty()) {
      had_work = true;
      idle_.Wait(&mu_);
    }
  }
  // The fence is shared with its callback, which may outlast this frame by its last few steps.
  struct Fence {
    Mutex mu;
    CondVar changed;
    bool reached ABSL_GUARDED_BY(mu) = false;
  };
  auto fence = std::make_shared<Fence>();
  Post(NewLane(), [this, fence] {
    device_->Fence([fence](const absl::Status&) {
      MutexLock lock(&fence->mu);
      fence->reached = true;
      fence->changed.SignalAll();
    });
  });
  while (by_hand && RunTurn()) {
  }
  MutexLock lock(&fence->mu);
  while (!fence->reached) fence->changed.Wait(&fence->mu);
  return had_work;
}

void Executor::Run() {
  device_->BindThread();
  Tasks turn;
  while (true) {
    std::shared_ptr<Lane> lane;
    {
      MutexLock lock(&mu_);
      while (entered_ || (ready_.empty() && !stopping_)) wake_.Wait(&mu_);
      if (ready_.empty()) return;
      lane = TakeLaneLocked(&turn);
    }
    RunTasks(std::move(lane), &turn);
  }
}

bool Executor::RunTurn() {
  Tasks turn;
  std::shared_ptr<Lane> lane;
  {
    MutexLock lock(&mu_);
    if (ready_.empty()) return false;
    lane = TakeLaneLocked(&turn);
  }
  RunTasks(std::move(lane), &turn);
  return true;
}

std::shared_ptr<Executor::Lane> Executor::TakeLaneLocked(Tasks* turn) {
  running_ = true;
  std::shared_ptr<Lane> lane = std::move(ready_.front());
  ready_.pop_front();
  while (!lane->tasks.empty() && turn->size() < kTasksPerTurn) {
    turn->push_back(std::move(lane->tasks.front()));
    lane->tasks.pop_front();
  }
  return lane;
}

void Executor::RunTasks(std::shared_ptr<Lane> lane, Tasks* turn) {
  for (Task& task : *turn) {
    task();
    task = nullptr;  // what the task held goes before the next one runs
  }
  turn->clear();
  MutexLock lock(&mu_);
  running_ = false;
  if (lane->tasks.empty()) {
    lane->queued = false;
  } else {
    ready_.push_back(std::move(lane));
  }
  if (ready_.empty()) idle_.SignalAll();
}

}  // namespace tensord::server
