// The thread that launches a device's work, fairly among those who bring it.
#pragma once

#include <atomic>
#include <deque>
#include <memory>
#include <thread>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "absl/functional/any_invocable.h"
#include "tensord/common/mutex.h"
#include "tensord/server/device/device.h"

namespace tensord::server {

// One per device. Work comes in lanes (one per session): each lane is first in, first out; lanes
// with work take turns, so that one client's backlog doesn't hold up another's single op. All of it
// is thread-safe. Destroying the executor runs what was posted, then joins.
//
// For tests it can do without a thread: what is posted then runs in RunTurn() and Drain(), on the
// thread that calls them.
class Executor {
 public:
  using Task = absl::AnyInvocable<void()>;

  class Lane;

  enum class Threading { kOwnThread, kByHand };

  explicit Executor(Device* device, Threading threading = Threading::kOwnThread);
  ~Executor();

  Device& device() const { return *device_; }

  // A lane of this executor's. The lane may be dropped while it still holds tasks; they run.
  std::shared_ptr<Lane> NewLane();

  // Runs `task` on the executor's thread after everything posted earlier to the same lane.
  void Post(const std::shared_ptr<Lane>& lane, Task task);

  // While it is held the executor's thread stands still, and the holder may launch brief kernels
  // (PreparedKernel::brief) from its own: where nothing else waits, that spares a hop between
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
  static constexpr int kTasksPerTurn = 16;  // makes the lock cheap, and is few enough to be fair
  using Tasks = absl::InlinedVector<Task, kTasksPerTurn>;

  bool TryEnter();
  void Leave();
  void Run();
  std::shared_ptr<Lane> TakeLaneLocked(Tasks* turn) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void RunTasks(std::shared_ptr<Lane> lane, Tasks* turn);

  Device* const device_;
  Mutex mu_;
  CondVar wake_;
  std::deque<std::shared_ptr<Lane>> ready_ ABSL_GUARDED_BY(mu_);  // lanes with work, in turn order
  bool running_ ABSL_GUARDED_BY(mu_) = false;                     // tasks, or whoever holds a Turn
  bool entered_ ABSL_GUARDED_BY(mu_) = false;                     // a Turn is held
  CondVar left_;
  std::deque<bool*> turns_ ABSL_GUARDED_BY(mu_);  // who waits for a Turn, to be set for the next
  std::atomic<bool> contended_{false};            // ready_ has something while a Turn is held
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  CondVar idle_;
  std::thread thread_;  // none where it runs by hand
};

}  // namespace tensord::server
