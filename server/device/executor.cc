#include "tensord/server/device/executor.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "tensord/common/util/tsan_annotations.h"

namespace tensord::server {

// The executor's mu_ guards queues and owners. A lane refers to its owner and to its queue. An
// owner refers to its queues that wait. Only callers refer to lanes.
struct Executor::Queue {
  std::deque<Posted> tasks;
  bool scheduled = false;  // Owner::queues holds it, or a slice of its tasks runs
};

// Start-time fair queueing. The time that an owner uses, divided by its weight, advances its
// position. The owner with the smallest position gets the next slice. An owner that was idle begins
// at last_position_, unless its own position is larger.
struct Executor::Owner {
  Weight weight;          // null: the server itself; the time it uses doesn't advance its position
  TimeCounter used_time;  // may be null
  uint64_t position = 0;
  uint64_t arrival = 0;  // if positions are equal, the owner with the smaller arrival is next
  std::deque<std::shared_ptr<Queue>> queues;  // queues with tasks; the first one gets a slice next
  bool scheduled = false;                     // the executor's ready_ holds it, or its slice runs
};

class Executor::Lane {
 public:
  const std::shared_ptr<Owner> owner;
  const std::shared_ptr<Queue> queue = std::make_shared<Queue>();
};

namespace {

// A task runs for this time before it yields.
constexpr int64_t kMinRunNanoseconds = 2'000'000;
// After this time no further task of a slice begins.
constexpr int64_t kSliceNanoseconds = 200'000;
// The distance by which a nanosecond advances an owner of weight 1. It is large enough to
// distinguish weights, and small enough for nine years without overflow.
constexpr uint64_t kStepsPerNanosecond = 64;

int64_t SteadyNanoseconds() {
  return std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// The clock of kCallerThread advances by this at each call.
constexpr int64_t kStepNanoseconds = 10'000;

}  // namespace

Executor::Executor(Device* device, Threading threading, Clock clock)
    : device_(device),
      yields_(device != nullptr && device->host_accessible()),
      clock_(std::move(clock)),
      server_owner_(std::make_shared<Owner>()) {
  if (threading == Threading::kCallerThread) {
    if (!clock_) clock_ = [now = int64_t{0}]() mutable { return now += kStepNanoseconds; };
    device_->BindThread();
  } else {
    if (!clock_) clock_ = SteadyNanoseconds;
    thread_ = std::thread([this] { Run(); });
  }
}

Executor::~Executor() {
  if (!thread_.joinable()) {
    while (RunSlice()) {
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

std::shared_ptr<Executor::Lane> Executor::NewLane(Weight weight, TimeCounter used_time) {
  if (weight == nullptr) return std::make_shared<Lane>(Lane{server_owner_});
  MutexLock lock(&mu_);
  const void* const key = weight.get();  // unique, because Owner::weight keeps the address in use
  std::shared_ptr<Owner> known = owners_[key].lock();
  if (known == nullptr) {
    absl::erase_if(owners_, [](const auto& entry) { return entry.second.expired(); });
    known = std::make_shared<Owner>();
    known->weight = std::move(weight);
    known->used_time = std::move(used_time);
    owners_[key] = known;
  }
  return std::make_shared<Lane>(Lane{std::move(known)});
}

namespace {

// Orders a heap whose top has the smallest position.
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

void Executor::Post(const std::shared_ptr<Lane>& lane, Task task, Length length) {
  bool wake = false;
  {
    MutexLock lock(&mu_);
    Owner& owner = *lane->owner;
    lane->queue->tasks.push_back({std::move(task), length});
    if (length == Length::kShort) may_have_tasks_.store(true, std::memory_order_relaxed);
    ++load_.unfinished_tasks;
    if (!lane->queue->scheduled) {
      lane->queue->scheduled = true;
      owner.queues.push_back(lane->queue);
      contended_.store(true, std::memory_order_relaxed);
      if (!owner.scheduled) {
        owner.scheduled = true;
        owner.position = std::max(owner.position, last_position_);
        wake = ready_.empty();
        AddReadyLocked(lane->owner);
      }
    }
  }
  if (wake) wake_.Signal();
}

Executor::InlineLock::InlineLock(Executor* executor, const Lane* lane, int64_t since)
    : lane_(lane) {
  bool waited = false;
  if (!executor->AcquireInline(&waited)) return;
  TsanLocked(executor);
  executor_ = executor;
  acquired_at_ = since == 0 || waited ? executor->clock_() : since;
}

bool Executor::AcquireInline(bool* waited) {
  MutexLock lock(&mu_);
  if (!ready_.empty()) return false;
  if (inline_held_) {
    // Another thread holds the lock for a short time, so this thread waits. Waiting threads get the
    // lock in the order of their arrival. Otherwise a thread with many ops would acquire it again
    // before a waiting thread wakes up.
    *waited = true;
    LockRequest request = LockRequest::kWaiting;
    lock_requests_.push_back(&request);
    while (request == LockRequest::kWaiting) inline_released_.Wait(&mu_);
    if (request == LockRequest::kRefused) return false;
  } else if (running_) {
    return false;
  }
  inline_held_ = running_ = true;
  contended_.store(!ready_.empty(), std::memory_order_relaxed);
  return true;
}

int64_t Executor::ReleaseInline(const Lane* lane, int64_t began) {
  TsanUnlocked(this);
  const int64_t now = clock_();
  bool wake = false;
  {
    MutexLock lock(&mu_);
    CountTimeLocked(lane != nullptr ? *lane->owner : *server_owner_, now - began);
    const bool work = !ready_.empty();
    wake = work || stopping_;
    if (!work && !lock_requests_.empty()) {
      *lock_requests_.front() = LockRequest::kGranted;  // inline_held_ stays set, for that thread
      lock_requests_.pop_front();
    } else {
      inline_held_ = running_ = false;
      // The queued tasks come first, so all requests are refused. The threads can't check ready_
      // themselves: when they wake up, the executor's thread may already have run the tasks.
      for (LockRequest* request : lock_requests_) *request = LockRequest::kRefused;
      lock_requests_.clear();
      if (!work) idle_.SignalAll();
    }
  }
  if (wake) wake_.Signal();
  inline_released_.SignalAll();
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
  while (by_hand && RunSlice()) had_work = true;
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
  while (by_hand && RunSlice()) {
  }
  MutexLock lock(&fence->mu);
  while (!fence->reached) fence->changed.Wait(&fence->mu);
  return had_work;
}

int64_t Executor::RunTasks(Tasks* tasks) {
  const int64_t began = clock_();
  const YieldScope scope(yields_ ? this : nullptr);
  resumed_at_ = began;
  nested_time_ = 0;
  int64_t took = 0;
  size_t done = 0;
  do {
    (*tasks)[done].task();
    (*tasks)[done].task = nullptr;  // destroys the task before the next one runs
    took = clock_() - began - nested_time_;
  } while (++done < tasks->size() && took < kSliceNanoseconds);
  tasks->erase(tasks->begin(), tasks->begin() + done);
  return took;
}

void Executor::ChargeLocked(Owner& owner, int64_t nanoseconds) {
  CountTimeLocked(owner, nanoseconds);
  if (owner.weight == nullptr) return;
  const int weight = std::max(1, owner.weight->load(std::memory_order_relaxed));
  owner.position +=
      kStepsPerNanosecond * static_cast<uint64_t>(std::max<int64_t>(0, nanoseconds)) / weight;
  max_position_ = std::max(max_position_, owner.position);
}

void Executor::RequeueLocked(Owner& owner, std::shared_ptr<Queue> queue) {
  queue->scheduled = !queue->tasks.empty();
  if (queue->scheduled) owner.queues.push_back(std::move(queue));
}

void Executor::EndSliceLocked(std::shared_ptr<Owner> owner, std::shared_ptr<Queue> queue,
                              int64_t nanoseconds) {
  ChargeLocked(*owner, nanoseconds);
  RequeueLocked(*owner, std::move(queue));
  owner->scheduled = !owner->queues.empty();
  if (owner->scheduled) AddReadyLocked(std::move(owner));
  // If no owner waits, all owners begin at the same position.
  if (ready_.empty()) last_position_ = max_position_;
}

bool Executor::TakeShortLocked(Work* work) {
  Owner* of = nullptr;
  std::deque<std::shared_ptr<Queue>>::iterator queue;
  const auto look = [&](Owner& owner) {
    if (of != nullptr && of->position <= owner.position) return;
    const auto found = std::find_if(owner.queues.begin(), owner.queues.end(), [](const auto& each) {
      return each->tasks.front().length == Length::kShort;
    });
    if (found == owner.queues.end()) return;
    of = &owner;
    queue = found;
  };
  look(*running_owner_);
  for (const std::shared_ptr<Owner>& owner : ready_) look(*owner);
  if (of == nullptr) return false;
  work->queue = std::move(*queue);
  of->queues.erase(queue);
  work->tasks.push_back(std::move(work->queue->tasks.front()));
  work->queue->tasks.pop_front();
  if (of == running_owner_) return true;
  const auto place = std::find_if(ready_.begin(), ready_.end(),
                                  [of](const auto& owner) { return owner.get() == of; });
  work->owner = std::move(*place);
  ready_.erase(place);
  std::make_heap(ready_.begin(), ready_.end(), kComesAfter);
  return true;
}

void Executor::Yield() {
  const int64_t began = clock_();
  const int64_t ran = began - resumed_at_;
  if (ran < kMinRunNanoseconds) return;
  const YieldScope no_yield(nullptr);
  const StopScope no_token(nullptr);
  int64_t now = began;
  while (now - began < ran) {
    Work work;
    {
      MutexLock lock(&mu_);
      if (!TakeShortLocked(&work)) {
        may_have_tasks_.store(false, std::memory_order_relaxed);
        break;
      }
    }
    work.tasks.front().task();
    work.tasks.clear();
    const int64_t ended = clock_();
    MutexLock lock(&mu_);
    --load_.unfinished_tasks;
    if (work.owner != nullptr) {
      EndSliceLocked(std::move(work.owner), std::move(work.queue), ended - now);
    } else {
      ChargeLocked(*running_owner_, ended - now);
      RequeueLocked(*running_owner_, std::move(work.queue));
    }
    now = ended;
  }
  nested_time_ += now - began;
  resumed_at_ = now;
}

void Executor::TakeWorkLocked(Work* work) {
  running_ = true;
  work->owner = TakeReadyLocked();
  running_owner_ = work->owner.get();
  work->queue = std::move(work->owner->queues.front());
  work->owner->queues.pop_front();
  std::deque<Posted>& tasks = work->queue->tasks;
  while (!tasks.empty() && work->tasks.size() < kMaxTasksPerSlice) {
    work->tasks.push_back(std::move(tasks.front()));
    tasks.pop_front();
  }
  may_have_tasks_.store(!ready_.empty() || !work->owner->queues.empty(), std::memory_order_relaxed);
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
  EndSliceLocked(std::move(work->owner), std::move(work->queue), took);
  if (ready_.empty()) idle_.SignalAll();
}

void Executor::Run() {
  device_->BindThread();
  Work work;
  while (true) {
    {
      MutexLock lock(&mu_);
      while (inline_held_ || (ready_.empty() && !stopping_)) wake_.Wait(&mu_);
      if (ready_.empty()) return;
      TakeWorkLocked(&work);
    }
    RunWork(&work);
  }
}

bool Executor::RunSlice() {
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
