#include "tensord/server/device/executor.h"

#include <algorithm>
#include <chrono>
#include <utility>

namespace tensord::server {

// The executor's mu_ guards queues and owners. A lane refers to its owner and to its queue. An
// owner refers to its queues that wait. Only callers refer to lanes.
struct Executor::Queue {
  std::deque<Task> tasks;
  bool waiting = false;  // Owner::queues holds it, or its tasks have their turn
};

// Start-time fair queueing. The time that an owner uses, divided by its weight, advances its
// position. The owner with the smallest position has the next turn. An owner that was idle begins
// at last_position_, unless its own position is larger.
struct Executor::Owner {
  Weight weight;          // null: the server itself; its position does not advance
  TimeCounter used_time;  // may be null
  uint64_t position = 0;
  uint64_t arrival = 0;  // of owners with equal positions, the one with the smallest is next
  std::deque<std::shared_ptr<Queue>> queues;  // queues with tasks, in the order of their turns
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
// The distance by which a nanosecond advances an owner of weight 1. It is large enough to
// distinguish weights, and small enough for nine years without overflow.
constexpr uint64_t kSteps = 64;

int64_t SteadyNanoseconds() {
  return std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// The step of the clock of kByHand.
constexpr int64_t kByHandNanoseconds = 10'000;

}  // namespace

Executor::Executor(Device* device, Threading threading, Clock clock)
    : device_(device), clock_(std::move(clock)), server_owner_(std::make_shared<Owner>()) {
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

std::shared_ptr<Executor::Lane> Executor::NewLane(Weight owner, TimeCounter used_time) {
  if (owner == nullptr) return std::make_shared<Lane>(Lane{server_owner_});
  MutexLock lock(&mu_);
  const void* const key = owner.get();  // unique, because Owner::weight keeps the address in use
  std::shared_ptr<Owner> known = owners_[key].lock();
  if (known == nullptr) {
    absl::erase_if(owners_, [](const auto& entry) { return entry.second.expired(); });
    known = std::make_shared<Owner>();
    known->weight = std::move(owner);
    known->used_time = std::move(used_time);
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
  if (owner->weight != nullptr) last_position_ = owner->position;
  return owner;
}

void Executor::Post(const std::shared_ptr<Lane>& lane, Task task) {
  bool wake = false;
  {
    MutexLock lock(&mu_);
    Owner& owner = *lane->owner;
    lane->queue->tasks.push_back(std::move(task));
    ++load_.unfinished_tasks;
    if (!lane->queue->waiting) {
      lane->queue->waiting = true;
      owner.queues.push_back(lane->queue);
      contended_.store(true, std::memory_order_relaxed);
      if (!owner.ready) {
        owner.ready = true;
        owner.position = std::max(owner.position, last_position_);
        wake = ready_.empty();
        AddReadyLocked(lane->owner);
      }
    }
  }
  if (wake) wake_.Signal();
}

Executor::Turn::Turn(Executor* executor, const Lane* lane, int64_t since) : lane_(lane) {
  bool waited = false;
  if (!executor->TryEnter(&waited)) return;
  executor_ = executor;
  began_ = since == 0 || waited ? executor->clock_() : since;
}

bool Executor::TryEnter(bool* waited) {
  MutexLock lock(&mu_);
  if (!ready_.empty()) return false;
  if (turn_held_) {
    // Another thread holds a Turn. Turns are short, so this thread waits. Waiting threads get Turns
    // in the order of their arrival. Otherwise a thread with many ops would take the next Turn
    // before a waiting thread wakes up.
    *waited = true;
    TurnRequest request = TurnRequest::kWaiting;
    waiting_turns_.push_back(&request);
    while (request == TurnRequest::kWaiting) turn_released_.Wait(&mu_);
    if (request == TurnRequest::kRefused) return false;
  } else if (running_) {
    return false;
  }
  turn_held_ = running_ = true;
  contended_.store(!ready_.empty(), std::memory_order_relaxed);
  return true;
}

int64_t Executor::Leave(const Lane* lane, int64_t began) {
  const int64_t now = clock_();
  bool wake = false;
  {
    MutexLock lock(&mu_);
    CountTimeLocked(lane != nullptr ? *lane->owner : *server_owner_, now - began);
    const bool work = !ready_.empty();
    wake = work || stopping_;
    if (!work && !waiting_turns_.empty()) {
      *waiting_turns_.front() = TurnRequest::kGranted;  // turn_held_ stays set, for that thread
      waiting_turns_.pop_front();
    } else {
      turn_held_ = running_ = false;
      // The queued tasks come first. By the time that a waiting thread wakes up, the executor's
      // thread may have run them: so this tells each waiting thread, and they don't look for tasks.
      for (TurnRequest* request : waiting_turns_) *request = TurnRequest::kRefused;
      waiting_turns_.clear();
      if (!work) idle_.SignalAll();
    }
  }
  if (wake) wake_.Signal();
  turn_released_.SignalAll();
  return now;
}

void Executor::CountTimeLocked(const Owner& owner, int64_t nanoseconds) {
  load_.busy_nanoseconds += nanoseconds;
  if (owner.used_time != nullptr) {
    owner.used_time->fetch_add(nanoseconds, std::memory_order_relaxed);
  }
}

Executor::Load Executor::load() const {
  MutexLock lock(&mu_);
  return load_;
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
  // The callback shares the fence, because it may end after this function has returned.
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
    (*tasks)[done] = nullptr;  // destroys the task before the next one runs
    took = clock_() - began;
  } while (++done < tasks->size() && took < kTurnNanoseconds);
  tasks->erase(tasks->begin(), tasks->begin() + done);
  return took;
}

void Executor::EndTurnLocked(std::shared_ptr<Owner> owner, std::shared_ptr<Queue> queue,
                             int64_t nanoseconds) {
  CountTimeLocked(*owner, nanoseconds);
  if (owner->weight != nullptr) {
    const int weight = std::max(1, owner->weight->load(std::memory_order_relaxed));
    owner->position += kSteps * static_cast<uint64_t>(std::max<int64_t>(0, nanoseconds)) / weight;
    max_position_ = std::max(max_position_, owner->position);
  }
  queue->waiting = !queue->tasks.empty();
  if (queue->waiting) owner->queues.push_back(std::move(queue));
  owner->ready = !owner->queues.empty();
  if (owner->ready) AddReadyLocked(std::move(owner));
  // No owner waits, so all owners begin at the same position.
  if (ready_.empty()) last_position_ = max_position_;
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
  const size_t given = work->tasks.size();
  const int64_t took = RunTasks(&work->tasks);
  MutexLock lock(&mu_);
  running_ = false;
  load_.unfinished_tasks -= static_cast<int64_t>(given - work->tasks.size());
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
      while (turn_held_ || (ready_.empty() && !stopping_)) wake_.Wait(&mu_);
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
