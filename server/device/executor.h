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

namespace tensord::server {

// There is one per device. Each session posts its tasks to a lane of its own. A lane runs its tasks
// in order. Each lane belongs to an owner, which is a principal. Owners with waiting tasks share
// the thread's time in proportion to their weights, and the lanes of one owner take turns. So a
// backlog, large tasks or many sessions of one owner do not delay a single op of another. Idle
// owners accrue no credit. Thread-safe. The destructor runs all posted tasks, then joins the
// thread. No Turn may be held then.
//
// The thread's time is the time that tasks take on it. If kernels run asynchronously (on a GPU), it
// is the time of their launches.
//
// For tests: with Threading::kByHand there is no thread. Tasks run in RunTurn() and Drain(), on the
// thread that calls them.
class Executor {
 public:
  using Task = absl::AnyInvocable<void()>;
  // Returns monotonic nanoseconds. Called by the thread that runs tasks or holds a Turn.
  using Clock = std::function<int64_t()>;
  // The weight of an owner: 1 to 1000, read at each turn. Its address identifies the owner.
  using Weight = std::shared_ptr<const std::atomic<int>>;
  // A counter of nanoseconds.
  using TimeCounter = std::shared_ptr<std::atomic<int64_t>>;

  class Lane;

  enum class Threading { kOwnThread, kByHand };

  // If `clock` is null, uses the system's monotonic clock, or with kByHand a clock that advances by
  // 10 us at each call.
  explicit Executor(Device* device, Threading threading = Threading::kOwnThread,
                    Clock clock = nullptr);
  ~Executor();

  // Returns a new lane of the owner with this weight. If the lane is dropped while it has tasks,
  // the tasks still run. The time of all tasks and Turns of the owner is added to the `used_time`
  // of the owner's first lane, which may be null; later values are ignored. A lane without an owner
  // is for work of the server itself. Such work runs before the owners' tasks and is charged to no
  // owner, so it must be short or rare.
  std::shared_ptr<Lane> NewLane(Weight owner = nullptr, TimeCounter used_time = nullptr);

  // Runs `task` on the executor's thread after everything posted earlier to the same lane.
  void Post(const std::shared_ptr<Lane>& lane, Task task);

  // While a thread holds a Turn, the executor's thread runs nothing, and the holder may launch
  // kernels that run inline (PreparedKernel::runs_inline) from its own thread. This saves a switch
  // between threads if nothing else waits. If another thread holds a Turn, the constructor blocks
  // until that Turn is released. Hold a Turn for microseconds, and release it when contended(). Its
  // time is added to the used time of the owner of `lane`, but doesn't count for fair scheduling.
  // `lane` must outlive the Turn. It is null for work of the server itself.
  class Turn {
   public:
    Turn() = default;
    // `since`: the result of End() of the Turn that this thread has just ended, or 0. If `since` is
    // not 0 and the constructor doesn't block, this Turn's time begins at `since`, which saves a
    // reading of the clock. Otherwise its time begins when the constructor returns.
    explicit Turn(Executor* executor, const Lane* lane = nullptr, int64_t since = 0);
    ~Turn() { End(); }
    Turn(const Turn&) = delete;
    Turn(Turn&& other) noexcept
        : executor_(std::exchange(other.executor_, nullptr)),
          lane_(other.lane_),
          began_(other.began_) {}
    Turn& operator=(Turn&& other) noexcept {
      End();
      executor_ = std::exchange(other.executor_, nullptr);
      lane_ = other.lane_;
      began_ = other.began_;
      return *this;
    }
    // Returns false if tasks were posted or running. The caller must then post its task, too.
    bool held() const { return executor_ != nullptr; }
    // Returns true if tasks were posted since the Turn began. Call it only if the Turn is held.
    bool contended() const { return executor_->contended_.load(std::memory_order_relaxed); }
    // Ends the Turn. Returns the time by the executor's clock, or 0 if the Turn wasn't held.
    int64_t End() {
      Executor* const executor = std::exchange(executor_, nullptr);
      return executor == nullptr ? 0 : executor->Leave(lane_, began_);
    }

   private:
    Executor* executor_ = nullptr;
    const Lane* lane_ = nullptr;
    int64_t began_ = 0;  // by the executor's clock
  };

  // Blocks until no task is posted or running and the device has finished all launched work.
  // Returns true if a task was posted or running. Must not be called from a task.
  bool Drain();

  // Only with kByHand. Runs the tasks of one turn. Returns false if no task waits.
  bool RunTurn();

  struct Load {
    int64_t busy_nanoseconds;  // time of tasks and of Turns, after they have ended
    int64_t unfinished_tasks;  // tasks that wait, and those of the current turn
  };
  // Doesn't wait for tasks or Turns.
  Load load() const;

 private:
  struct Queue;
  struct Owner;
  // The maximum number of tasks of a turn. Fewer would take the lock more often. More would delay
  // other lanes.
  static constexpr size_t kTasksPerTurn = 16;
  using Tasks = absl::InlinedVector<Task, kTasksPerTurn>;
  // The work of a turn.
  struct Work {
    std::shared_ptr<Owner> owner;
    std::shared_ptr<Queue> queue;
    Tasks tasks;
  };

  // A thread that waits for a Turn. Refused: tasks were posted.
  enum class TurnRequest { kWaiting, kGranted, kRefused };

  // Begins a Turn. Sets `*waited` to whether another thread's Turn had to end first.
  bool TryEnter(bool* waited);
  // Ends a Turn of `lane` that began at this time. Returns the current time.
  int64_t Leave(const Lane* lane, int64_t began);
  // Adds the time of tasks or of a Turn to the load, and to the owner's used time.
  void CountTimeLocked(const Owner& owner, int64_t nanoseconds) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Run();
  void AddReadyLocked(std::shared_ptr<Owner> owner) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Removes the owner whose turn is next from ready_, and returns it. ready_ must not be empty.
  std::shared_ptr<Owner> TakeReadyLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void TakeWorkLocked(Work* work) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Runs the work until the turn's time is up, and returns the remaining tasks to their queue.
  void RunWork(Work* work);
  // Runs tasks until the turn's time is up, and removes those that ran. Returns the nanoseconds
  // that this took.
  int64_t RunTasks(Tasks* tasks);
  // Ends a turn that took `nanoseconds`. `queue` holds the tasks that remain.
  void EndTurnLocked(std::shared_ptr<Owner> owner, std::shared_ptr<Queue> queue,
                     int64_t nanoseconds) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  Device* const device_;
  Clock clock_;
  const std::shared_ptr<Owner> server_owner_;  // stands for the server in lanes without an owner
  mutable Mutex mu_;
  CondVar wake_;
  // Owners with tasks, except the owner that has its turn: a heap with the next owner on top.
  std::vector<std::shared_ptr<Owner>> ready_ ABSL_GUARDED_BY(mu_);
  absl::flat_hash_map<const void*, std::weak_ptr<Owner>> owners_ ABSL_GUARDED_BY(mu_);
  // The position at which an owner begins that was idle: that of the last owner that had a turn, or
  // the largest position if no owner waits.
  uint64_t last_position_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t max_position_ ABSL_GUARDED_BY(mu_) = 0;  // the largest position of any owner
  uint64_t arrivals_ ABSL_GUARDED_BY(mu_) = 0;
  Load load_ ABSL_GUARDED_BY(mu_) = {};
  bool running_ ABSL_GUARDED_BY(mu_) = false;    // a task runs, or a Turn is held
  bool turn_held_ ABSL_GUARDED_BY(mu_) = false;  // a Turn is held
  CondVar turn_released_;
  // The threads that wait for a Turn, in the order of their arrival. Leave() answers and removes
  // them.
  std::deque<TurnRequest*> waiting_turns_ ABSL_GUARDED_BY(mu_);
  std::atomic<bool> contended_{false};  // ready_ isn't empty while a Turn is held
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  CondVar idle_;
  std::thread thread_;  // not joinable with kByHand
};

}  // namespace tensord::server
