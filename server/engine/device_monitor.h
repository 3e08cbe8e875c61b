// Monitors devices that can be lost: notices the loss, reports it, and brings the devices back.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "tensord/common/util/mutex.h"
#include "tensord/server/device/restartable_device.h"
#include "tensord/server/session/tensor.h"

namespace tensord::server {

// There is one for each fault domain. Each has a thread of its own, so a device that takes long to
// come back does not delay those of other domains.
class DeviceMonitor {
 public:
  // Called in order for each device: with false when the device was lost, before the monitor does
  // anything else about it; with true when it is back.
  using Listener = std::function<void(DeviceSlot& slot, bool serving)>;

  // `slots` must be restartable, be of one domain, and outlive the monitor.
  DeviceMonitor(std::vector<DeviceSlot*> slots, Listener listener);
  // Blocks until an attempt to bring devices back has ended.
  ~DeviceMonitor();

 private:
  void Run();
  // Sleeps until a device is lost or it is time to check. Returns false if the monitor must end.
  bool Wait();
  void Look();
  void BringBack();
  // Runs `task` on the executor of each device. Blocks until all have run.
  void OnExecutors(const std::function<void(RestartableDevice&)>& task);

  const std::vector<DeviceSlot*> slots_;
  const Listener listener_;

  // Only the monitor's thread uses these.
  bool reported_serving_ = true;  // what the last call of the listener said
  std::chrono::steady_clock::time_point next_try_;
  std::chrono::milliseconds pause_{0};  // before the next try

  Mutex mu_;
  CondVar changed_;
  bool news_ ABSL_GUARDED_BY(mu_) = false;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  std::thread thread_;
};

// Returns the slots whose devices can be lost, by fault domain.
std::vector<std::vector<DeviceSlot*>> FaultDomains(const std::vector<DeviceSlot*>& slots);

}  // namespace tensord::server
