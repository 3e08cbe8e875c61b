// The thread that launches a device's work, fairly among those who bring it.
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
#include "tensord/common/mutex.h"
#include "tensord/server/device/device.h"

namespace tensord::server {

// One per device. Work comes in lanes (one per session): each lane is first in, first out. Lanes
// belong to owners (principals). Owners with work have the thread's time in proportion to their
// weights, and the lanes of one owner take turns: neither a backlog, nor large tasks, nor many
// sessions hold up another's single op. Time in which an owner had no work isn't made up for. All
// of it is thread-safe. Destroying the executor runs what was posted, then joins.
//
// Time is what tasks take on this thread: with kernels that run behind their launch (on a GPU) it
// is that of the launches.
//
// For tests it can do without a thread: what is posted then runs in RunTurn() and Drain(), on the
// thread that calls them.
class Executor {
 public:
  using Task = absl::AnyInvocable<void()>;
  // Nanoseconds that never go back; called on the executor's thread.
  using Clock = std::function<int64_t()>;
  // An owner is known by where its weight is, which is read anew at each turn: 1 to 1000.
  using Weight = std::shared_ptr<const std::atomic<int>>;

  class Lane;

  enum class Threading { kOwnThread, kByHand };

  // Without a clock it is the system's, or by hand one that goes on by a step at each look.
  explicit Executor(Device* device, Threading threading = Threading::kOwnThread,
                    Clock clock = nullptr);
  ~Executor();

  // A lane of this executor's, of the owner with this weight. It may be dropped while it still
  // holds tasks; they run. Without an owner it is for what the server itself has to do, briefly or
  // seldom: that comes before what owners have waiting, and is at nobody's charge.
  std::shared_ptr<Lane> NewLane(Weight owner = nullptr);

  // Runs `task` on the executor's thread after everything posted earlier to the same lane.
  void Post(const std::shared_ptr<Lane>& lane, Task task);

  // While it is held the executor's thread stands still, and the holder may launch brief kernels
  // (PreparedKernel::runs_inline) from its own: where nothing else waits, that spares a hop between
  // threads. Hold it for microseconds, and let go when contended().
  class Turn {
   public:
    Turn() = default;
    explicit Turn(Executor* executor) : executor_(executor->TryEnter() ? executor : nullptr) {}
    ~Turn() { Release(); }
    Turn(const Turn&) = delete;
    Turn(Turn&& other) noexcept : executor_(std::exchange(other.executor_, nullptr)) {}
    Turn& operator=(Turn&& other) noexcept {
      Release();
      executor_ = std::exchange(other.executor_, nullptr);
      return *this;
    }
    // False where work is posted or running: then post, too.
    bool held() const { return executor_ != nullptr; }
    bool contended() const { return executor_->contended_.load(std::memory_order_relaxed); }

   private:
    void Release() {
      if (executor_ != nullptr) executor_->Leave();
      executor_ = nullptr;
    }
    Executor* executor_ = nullptr;
  };

  // Blocks until nothing is posted or running and the device has finished what was launched.
  // Returns whether there was anything posted or running. Not from a task.
  bool Drain();

  // By hand: runs what the first of the waiting lanes has for one turn; false where nothing waits.
  bool RunTurn();

 private:
  struct Queue;
  struct Owner;
  // Those of a turn: enough to make the lock cheap, few enough to be fair.
  static constexpr size_t kTasksPerTurn = 16;
  using Tasks = absl::InlinedVector<Task, kTasksPerTurn>;
  // A turn's.
  struct Work {
    std::shared_ptr<Owner> owner;
    std::shared_ptr<Queue> queue;
    Tasks tasks;
  };

  bool TryEnter();
  void Leave();
  void Run();
  void AddReadyLocked(std::shared_ptr<Owner> owner) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // The owner whose turn it is; there is one.
  std::shared_ptr<Owner> TakeReadyLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void TakeWorkLocked(Work* work) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Runs it until a turn's time is up, and puts the rest back.
  void RunWork(Work* work);
  // Runs tasks until a turn's time is up, takes those out, and says how long it took.
  int64_t RunTasks(Tasks* tasks);
  // After a turn that took so long, and left `queue` what is in it.
  void EndTurnLocked(std::shared_ptr<Owner> owner, std::shared_ptr<Queue> queue,
                     int64_t nanoseconds) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  Device* const device_;
  Clock clock_;
  const std::shared_ptr<Owner> own_;  // of the lanes without an owner
  Mutex mu_;
  CondVar wake_;
  // Owners with work, a heap with the next one on top; not the one whose turn it is.
  std::vector<std::shared_ptr<Owner>> ready_ ABSL_GUARDED_BY(mu_);
  absl::flat_hash_map<const void*, std::weak_ptr<Owner>> owners_ ABSL_GUARDED_BY(mu_);
  uint64_t now_ ABSL_GUARDED_BY(mu_) = 0;       // how far the last that had a turn was then
  uint64_t furthest_ ABSL_GUARDED_BY(mu_) = 0;  // how far any has come
  uint64_t arrivals_ ABSL_GUARDED_BY(mu_) = 0;
  bool running_ ABSL_GUARDED_BY(mu_) = false;  // tasks, or whoever holds a Turn
  bool entered_ ABSL_GUARDED_BY(mu_) = false;  // a Turn is held
  CondVar left_;
  std::deque<bool*> turns_ ABSL_GUARDED_BY(mu_);  // who waits for a Turn, to be set for the next
  std::atomic<bool> contended_{false};            // ready_ has something while a Turn is held
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  CondVar idle_;
  std::thread thread_;  // none where it runs by hand
};

}  // namespace tensord::server
