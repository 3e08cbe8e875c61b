// The thread that launches a device's work, fairly among those who bring it.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <thread>

#include "absl/container/inlined_vector.h"
#include "tensord/common/mutex.h"
#include "tensord/server/device/device.h"

namespace tensord::server {

// One per device. Work comes in lanes (one per session): each lane is first in, first out; lanes
// with work take turns, so that one client's backlog doesn't hold up another's single op. All of it
// is thread-safe. Destroying the executor runs what was posted, then joins.
class Executor {
 public:
  using Task = std::function<void()>;

  class Lane;

  explicit Executor(Device* device);
  ~Executor();

  Device& device() const { return *device_; }

  // A lane of this executor's. The lane may be dropped while it still holds tasks; they run.
  std::shared_ptr<Lane> NewLane();

  // Runs `task` on the executor's thread after everything posted earlier to the same lane.
  void Post(const std::shared_ptr<Lane>& lane, Task task);

  // Blocks until nothing is posted or running and the device has finished what was launched.
  // Returns whether there was anything posted or running. Not from a task.
  bool Drain();

 private:
  void Run();

  Device* const device_;
  Mutex mu_;
  CondVar wake_;
  std::deque<std::shared_ptr<Lane>> ready_ ABSL_GUARDED_BY(mu_);  // lanes with work, in turn order
  bool running_ ABSL_GUARDED_BY(mu_) = false;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  CondVar idle_;
  std::thread thread_;
};

}  // namespace tensord::server
