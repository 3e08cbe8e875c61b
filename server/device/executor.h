// The thread that launches a device's work, with fair scheduling among principals.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/inlined_vector.h"
#include "absl/functional/any_invocable.h"
#include "tensord/common/util/mutex.h"
#include "tensord/server/device/device.h"
#include "tensord/server/device/stop_token.h"

namespace tensord::server {

// Each device has one executor. Each session posts its tasks to a lane of its own. A lane runs its
// tasks in order. A lane belongs to an owner, which is a principal, or to the server itself.
//
// The thread runs tasks in slices. A slice is a few tasks of one lane. After 200 us no further task
// of the slice begins. Owners with waiting tasks share the thread's time in proportion to their
// weights, and the lanes of one owner get slices in rotation. If an owner has used no more than its
// share, its next task waits for the slice that runs, and for at most one slice of each other
// owner. A backlog or many sessions of the other owners don't make this longer. Idle owners accrue
// no credit.
//
// A task on a host-accessible device isn't interrupted. If it has run for 2 ms, the thread runs
// waiting short tasks of other lanes at its next stop point (stop_token.h). They get as much time
// as the task has run since the last such point, plus the rest of one short task. So the task takes
// about twice as long at most. Other tasks wait until it ends.
//
// Only the time that tasks take on the thread counts. If kernels run asynchronously (on a GPU),
// this is the time of their launches.
//
// Thread-safe. The destructor runs all posted tasks, then joins the thread. While it runs, no
// thread may hold an InlineLock.
class Executor final : private Yielder {
 public:
  using Task = absl::AnyInvocable<void()>;
  // Returns monotonic nanoseconds. Only the thread that runs tasks or holds an InlineLock calls it,
  // so one thread at a time.
  using Clock = std::function<int64_t()>;
  // The weight of an owner: 1 to 1000, read at the end of each slice. Its address identifies the
  // owner.
  using Weight = std::shared_ptr<const std::atomic<int>>;
  // A counter of nanoseconds.
  using TimeCounter = std::shared_ptr<std::atomic<int64_t>>;

  class Lane;

  // The thread that runs the tasks.
  enum class Threading {
    kOwnThread,     // a thread of this object
    kCallerThread,  // the one that calls RunSlice(), Drain() or the destructor, in that call
  };

  // If `clock` is null, uses the system's monotonic clock, or with kCallerThread a clock that
  // advances by 10 us at each call. With kCallerThread, the thread that calls the constructor must
  // also make all other calls that run tasks. The same calls then always run the same tasks in the
  // same order.
  explicit Executor(Device* device, Threading threading = Threading::kOwnThread,
                    Clock clock = nullptr);
  ~Executor();

  // Returns a new lane of the owner that `weight` identifies by its address. If the lane is dropped
  // while it has tasks, the tasks still run. The time of all tasks and InlineLocks of the owner is
  // added to the `used_time` of the owner's first lane, which may be null. Later values are
  // ignored.
  //
  // If `weight` is null, the lane is for work of the server itself. Such work waits no longer than
  // that of an idle owner, however much time it has used. It is charged to no owner, so it must be
  // short or rare.
  std::shared_ptr<Lane> NewLane(Weight weight = nullptr, TimeCounter used_time = nullptr);

  // Runs `task` on the executor's thread after everything posted earlier to the same lane. `length`
  // is kShort if the task takes microseconds, and if all kernels that it launches run inline
  // (PreparedKernel::runs_inline).
  enum class Length { kAny, kShort };
  void Post(const std::shared_ptr<Lane>& lane, Task task, Length length = Length::kAny);

  // While a thread holds an InlineLock, the executor's thread runs nothing, and the holder may
  // launch kernels that run inline (PreparedKernel::runs_inline) from its own thread. This saves a
  // switch between threads if nothing else waits. At most one thread holds an InlineLock of an
  // executor. Hold it for microseconds, and release it when contended(). Its time is added to the
  // used time of the owner of `lane`, but doesn't count for fair scheduling. `lane` must outlive
  // the InlineLock. If `lane` is null, the time is the server's own.
  class InlineLock {
   public:
    InlineLock() = default;
    // If a task waits or runs, doesn't acquire the lock. Otherwise, if another thread holds it,
    // blocks until this thread acquires it, or until it is released while a task waits. Threads
    // that wait acquire it in the order of their arrival. Check held() afterwards.
    //
    // `since` is the result of Release() of the InlineLock that this thread has just released, or
    // 0. If `since` is not 0 and the constructor doesn't block, the time of this InlineLock begins
    // at `since`, which saves a reading of the clock. Otherwise it begins when the constructor
    // returns.
    explicit InlineLock(Executor* executor, const Lane* lane = nullptr, int64_t since = 0);
    ~InlineLock() { Release(); }
    InlineLock(const InlineLock&) = delete;
    InlineLock(InlineLock&& other) noexcept
        : executor_(std::exchange(other.executor_, nullptr)),
          lane_(other.lane_),
          acquired_at_(other.acquired_at_) {}
    InlineLock& operator=(InlineLock&& other) noexcept {
      Release();
      executor_ = std::exchange(other.executor_, nullptr);
      lane_ = other.lane_;
      acquired_at_ = other.acquired_at_;
      return *this;
    }
    // Returns false if the constructor didn't acquire the lock, or if it has been released. If the
    // constructor didn't acquire it, the caller must post its own task.
    bool held() const { return executor_ != nullptr; }
    // Returns true if a task was posted since the lock was acquired. Call it only if held().
    bool contended() const { return executor_->contended_.load(std::memory_order_relaxed); }
    // Returns when the lock was acquired, by the executor's clock. If the lock isn't held, the
    // result has no meaning.
    int64_t acquired_at() const { return acquired_at_; }
    // Releases the lock. Returns the time by the executor's clock, or 0 if the lock wasn't held.
    int64_t Release() {
      Executor* const executor = std::exchange(executor_, nullptr);
      return executor == nullptr ? 0 : executor->ReleaseInline(lane_, acquired_at_);
    }

   private:
    Executor* executor_ = nullptr;
    const Lane* lane_ = nullptr;
    int64_t acquired_at_ = 0;  // by the executor's clock
  };

  // Blocks until no task waits or runs, no thread holds an InlineLock, and the device has finished
  // all launched work. Returns true if a task waited or ran, or if an InlineLock was held. Must not
  // be called from a task, or by a thread that holds an InlineLock.
  bool Drain();

  // Runs one slice. If no task waits, returns false. Call it only with kCallerThread.
  bool RunSlice();

  struct Load {
    int64_t busy_nanoseconds;  // time of the slices and InlineLocks that have ended
    int64_t unfinished_tasks;  // tasks that wait, and those of the slice that runs
  };
  // Doesn't wait for tasks or InlineLocks.
  Load load() const;

 private:
  struct Queue;
  struct Owner;
  // The maximum number of tasks of a slice. Fewer would lock mu_ more often. More would delay other
  // lanes.
  static constexpr size_t kMaxTasksPerSlice = 16;
  struct Posted {
    Task task;
    Length length;
  };
  using Tasks = absl::InlinedVector<Posted, kMaxTasksPerSlice>;
  // The work of a slice.
  struct Work {
    std::shared_ptr<Owner> owner;
    std::shared_ptr<Queue> queue;
    Tasks tasks;
  };

  // The state of a waiting thread's request for the InlineLock. kRefused means that a task waited
  // when the lock was released.
  enum class LockRequest { kWaiting, kGranted, kRefused };

  // Acquires the InlineLock, as its constructor describes. Returns whether it was acquired. If
  // another thread held it, sets `*waited`.
  bool AcquireInline(bool* waited);
  // Releases the InlineLock of `lane`, whose time began at `began`. Returns the current time.
  int64_t ReleaseInline(const Lane* lane, int64_t began);
  // Adds the time of a slice or of an InlineLock to the load, and to the owner's used time.
  void CountTimeLocked(const Owner& owner, int64_t nanoseconds) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Run();
  void AddReadyLocked(std::shared_ptr<Owner> owner) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Removes the owner with the smallest position from ready_, and returns it. ready_ must not be
  // empty.
  std::shared_ptr<Owner> TakeReadyLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void TakeWorkLocked(Work* work) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Runs the work until the slice's time is up, and returns the remaining tasks to their queue.
  void RunWork(Work* work);
  // Runs short tasks of other lanes, if the running task has run for a while.
  void Yield() override;
  // Takes the first task of a lane whose first task is short, of the owner with the smallest
  // position. Returns false if there is none.
  bool TakeShortLocked(Work* work) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Charges time to the owner and advances its position.
  void ChargeLocked(Owner& owner, int64_t nanoseconds) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // If `queue` has tasks, adds it to the end of the owner's queues.
  void RequeueLocked(Owner& owner, std::shared_ptr<Queue> queue) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Runs the first task, and further ones until the slice's time is up. Removes those that ran.
  // Returns the nanoseconds that this took.
  int64_t RunTasks(Tasks* tasks);
  // Ends a slice that took `nanoseconds`. `queue` holds the tasks that remain.
  void EndSliceLocked(std::shared_ptr<Owner> owner, std::shared_ptr<Queue> queue,
                      int64_t nanoseconds) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  Device* const device_;
  const bool yields_;  // at the stop points of tasks
  Clock clock_;
  const std::shared_ptr<Owner> server_owner_;  // of lanes for work of the server itself
  mutable Mutex mu_;
  CondVar wake_;
  // Owners with tasks, except the owner whose slice runs: a heap with the next owner on top.
  std::vector<std::shared_ptr<Owner>> ready_ ABSL_GUARDED_BY(mu_);
  absl::flat_hash_map<const void*, std::weak_ptr<Owner>> owners_ ABSL_GUARDED_BY(mu_);
  // The position of the last owner that got a slice. If no owner waits, the largest position. An
  // idle owner begins here when it gets a task, unless its own position is larger.
  uint64_t last_position_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t max_position_ ABSL_GUARDED_BY(mu_) = 0;  // the largest position of any owner
  uint64_t arrivals_ ABSL_GUARDED_BY(mu_) = 0;
  Load load_ ABSL_GUARDED_BY(mu_) = {};
  bool running_ ABSL_GUARDED_BY(mu_) = false;      // a slice runs, or an InlineLock is held
  bool inline_held_ ABSL_GUARDED_BY(mu_) = false;  // an InlineLock is held
  CondVar inline_released_;
  // The requests of waiting threads, in the order of their arrival. ReleaseInline() answers and
  // removes them.
  std::deque<LockRequest*> lock_requests_ ABSL_GUARDED_BY(mu_);
  // A task was posted since the InlineLock was acquired. Undefined while no InlineLock is held.
  std::atomic<bool> contended_{false};
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  // Of the slice that runs. Only the thread that runs it uses them.
  Owner* running_owner_ = nullptr;
  int64_t resumed_at_ = 0;   // when the slice began, or Yield() returned
  int64_t nested_time_ = 0;  // how long Yield() has run short tasks in this slice
  CondVar idle_;
  std::thread thread_;  // not joinable with kCallerThread
};

}  // namespace tensord::server
