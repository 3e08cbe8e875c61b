#include "tensord/server/device/executor.h"

#include <algorithm>
#include <chrono>
#include <utility>

namespace tensord::server {

// The executor's mu_ guards queues and owners. References: a lane to its owner and its queue, an
// owner to its queues that wait. Only callers refer to lanes.
struct Executor::Queue {
  std::deque<Task> tasks;
  bool waiting = false;  // its owner lists it, or it has its turn
};

// Start-time fair queueing. The time that an owner uses, divided by its weight, advances its
// position. The owner with the smallest position has the next turn. An owner that was idle begins
// at the position of the others.
struct Executor::Owner {
  Weight weight;  // null: the server itself; its position does not advance
  uint64_t position = 0;
  uint64_t arrival = 0;  // of two with equal positions, the first to arrive is next
  std::deque<std::shared_ptr<Queue>> queues;  // with tasks, in turn order
  bool ready = false;                         // the executor's ready_ holds it, or it has its turn
};

class Executor::Lane {
 public:
  const std::shared_ptr<Owner> owner;
  const std::shared_ptr<Queue> queue = std::make_shared<Queue>();
};

namespace {

// After this time no further task of a turn begins.
constexpr int64_t kTurnNanoseconds = 200'000;
// How far a nanosecond advances an owner of weight 1: enough to distinguish weights, and little
// enough for nine years.
constexpr uint64_t kSteps = 64;

int64_t SteadyNanoseconds() {
  return std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// The step of the clock of kByHand.
constexpr int64_t kByHandNanoseconds = 10'000;

}  // namespace

Executor::Executor(Device* device, Threading threading, Clock clock)
    : device_(device), clock_(std::move(clock)), own_(std::make_shared<Owner>()) {
  if (threading == Threading::kByHand) {
    if (!clock_) clock_ = [now = int64_t{0}]() mutable { return now += kByHandNanoseconds; };
    device_->BindThread();
  } else {
    if (!clock_) clock_ = SteadyNanoseconds;
    thread_ = std::thread([this] { Run(); });
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

std::shared_ptr<Executor::Lane> Executor::NewLane(Weight owner) {
  if (owner == nullptr) return std::make_shared<Lane>(Lane{own_});
  MutexLock lock(&mu_);
  const void* const key = owner.get();  // unique while the owner refers to it
  std::shared_ptr<Owner> known = owners_[key].lock();
  if (known == nullptr) {
    absl::erase_if(owners_, [](const auto& entry) { return entry.second.expired(); });
    known = std::make_shared<Owner>();
    known->weight = std::move(owner);
    owners_[key] = known;
  }
  return std::make_shared<Lane>(Lane{std::move(known)});
}

namespace {

// For a heap whose top has the smallest position.
constexpr auto kComesAfter = [](const auto& a, const auto& b) {
  return a->position != b->position ? a->position > b->position : a->arrival > b->arrival;
};

}  // namespace

void Executor::AddReadyLocked(std::shared_ptr<Owner> owner) {
  owner->arrival = ++arrivals_;
  ready_.push_back(std::move(owner));
  std::push_heap(ready_.begin(), ready_.end(), kComesAfter);
}

std::shared_ptr<Executor::Owner> Executor::TakeReadyLocked() {
  std::pop_heap(ready_.begin(), ready_.end(), kComesAfter);
  std::shared_ptr<Owner> owner = std::move(ready_.back());
  ready_.pop_back();
  if (owner->weight != nullptr) now_ = owner->position;
  return owner;
}

void Executor::Post(const std::shared_ptr<Lane>& lane, Task task) {
  bool wake = false;
  {
    MutexLock lock(&mu_);
    Owner& owner = *lane->owner;
    lane->queue->tasks.push_back(std::move(task));
    if (!lane->queue->waiting) {
      lane->queue->waiting = true;
      owner.queues.push_back(lane->queue);
      contended_.store(true, std::memory_order_relaxed);
      if (!owner.ready) {
        owner.ready = true;
        owner.position = std::max(owner.position, now_);
        wake = ready_.empty();
        AddReadyLocked(lane->owner);
      }
    }
  }
  if (wake) wake_.Signal();
}

bool Executor::TryEnter() {
  MutexLock lock(&mu_);
  if (!ready_.empty()) return false;
  if (entered_) {
    // Another thread holds a Turn, which is short: wait for it. First come, first served; otherwise
    // a thread with many ops would take the next Turn before a waiting thread wakes up.
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
      *turns_.front() = true;  // entered_ stays set, for the next holder
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

int64_t Executor::RunTasks(Tasks* tasks) {
  const int64_t began = clock_();
  int64_t took = 0;
  size_t done = 0;
  do {
    (*tasks)[done]();
    (*tasks)[done] = nullptr;  // what the task held goes before the next one runs
    took = clock_() - began;
  } while (++done < tasks->size() && took < kTurnNanoseconds);
  tasks->erase(tasks->begin(), tasks->begin() + done);
  return took;
}

void Executor::EndTurnLocked(std::shared_ptr<Owner> owner, std::shared_ptr<Queue> queue,
                             int64_t nanoseconds) {
  if (owner->weight != nullptr) {
    const int weight = std::max(1, owner->weight->load(std::memory_order_relaxed));
    owner->position += kSteps * static_cast<uint64_t>(std::max<int64_t>(0, nanoseconds)) / weight;
    furthest_ = std::max(furthest_, owner->position);
  }
  queue->waiting = !queue->tasks.empty();
  if (queue->waiting) owner->queues.push_back(std::move(queue));
  owner->ready = !owner->queues.empty();
  if (owner->ready) AddReadyLocked(std::move(owner));
  // No owner waits, so all begin at the same position.
  if (ready_.empty()) now_ = furthest_;
}

void Executor::TakeWorkLocked(Work* work) {
  running_ = true;
  work->owner = TakeReadyLocked();
  work->queue = std::move(work->owner->queues.front());
  work->owner->queues.pop_front();
  std::deque<Task>& tasks = work->queue->tasks;
  while (!tasks.empty() && work->tasks.size() < kTasksPerTurn) {
    work->tasks.push_back(std::move(tasks.front()));
    tasks.pop_front();
  }
}

void Executor::RunWork(Work* work) {
  const int64_t took = RunTasks(&work->tasks);
  MutexLock lock(&mu_);
  running_ = false;
  for (; !work->tasks.empty(); work->tasks.pop_back()) {
    work->queue->tasks.push_front(std::move(work->tasks.back()));
  }
  EndTurnLocked(std::move(work->owner), std::move(work->queue), took);
  if (ready_.empty()) idle_.SignalAll();
}

void Executor::Run() {
  device_->BindThread();
  Work work;
  while (true) {
    {
      MutexLock lock(&mu_);
      while (entered_ || (ready_.empty() && !stopping_)) wake_.Wait(&mu_);
      if (ready_.empty()) return;
      TakeWorkLocked(&work);
    }
    RunWork(&work);
  }
}

bool Executor::RunTurn() {
  Work work;
  {
    MutexLock lock(&mu_);
    if (ready_.empty()) return false;
    TakeWorkLocked(&work);
  }
  RunWork(&work);
  return true;
}

}  // namespace tensord::server
