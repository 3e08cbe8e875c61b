// Looks after devices that can be lost: notices, tells, and brings them back.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "tensord/common/mutex.h"
#include "tensord/server/device/restartable_device.h"
#include "tensord/server/session/tensor.h"

namespace tensord::server {

// One for each fault domain, with a thread of its own: a device that takes long to come back holds
// up nobody else's.
class DeviceMonitor {
 public:
  // What becomes of a device, in order: false when it has been lost, before anything else is done
  // about it; true when it is back.
  using Listener = std::function<void(DeviceSlot& slot, bool serving)>;

  // `slots` are restartable, of one domain, and outlive this.
  DeviceMonitor(std::vector<DeviceSlot*> slots, Listener listener);
  // Waits for what is under way.
  ~DeviceMonitor();

 private:
  void Run();
  // Sleeps until a device is lost or it is time to look. False where it is time to end.
  bool Wait();
  void Look();
  void BringBack();
  // Runs `task` on the executor of each device; returns when all have run.
  void OnExecutors(const std::function<void(RestartableDevice&)>& task);

  const std::vector<DeviceSlot*> slots_;
  const Listener listener_;

  // Of the monitor's thread.
  bool reported_serving_ = true;  // what the listener was last told: whether the devices serve
  std::chrono::steady_clock::time_point next_try_;
  std::chrono::milliseconds pause_{0};  // before the next try

  Mutex mu_;
  CondVar changed_;
  bool news_ ABSL_GUARDED_BY(mu_) = false;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  std::thread thread_;
};

// The slots whose devices can be lost, by fault domain.
std::vector<std::vector<DeviceSlot*>> FaultDomains(const std::vector<DeviceSlot*>& slots);

}  // namespace tensord::server
