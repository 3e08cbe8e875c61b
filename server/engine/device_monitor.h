// Monitors devices that can be lost: detects the loss, reports it, and restarts the devices.
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

// What has happened to the devices of a fault domain.
enum class DeviceEvent {
  kLost,          // a device was lost. The monitor will restart all devices of the domain
  kServing,       // all devices of the domain serve again
  kNotRestarted,  // several restarts in a row have failed. The monitor keeps trying
};

// There is one for each fault domain. Each has its own thread, so a slow restart in one domain does
// not delay other domains.
class DeviceMonitor {
 public:
  // The monitor calls it for each device of the domain.
  using Listener = std::function<void(DeviceSlot& slot, DeviceEvent event)>;

  // `slots` must be restartable, be of one domain, and outlive the monitor.
  DeviceMonitor(std::vector<DeviceSlot*> slots, Listener listener);
  // Blocks until the restart that may be in progress has ended.
  ~DeviceMonitor();

 private:
  void Run();
  // Sleeps until a device is lost or it is time to check. Returns false if the monitor must end.
  bool Wait();
  // Restarts the devices if one is lost.
  void CheckDevices();
  void Restart();
  // Runs `task` on the executor of each device. Blocks until all have run.
  void OnExecutors(const std::function<void(RestartableDevice&)>& task);
  // Calls the listener for each device of the domain.
  void Report(DeviceEvent event);

  const std::vector<DeviceSlot*> slots_;
  const Listener listener_;

  // Only the monitor's thread uses these.
  bool reported_serving_ = true;  // false from kLost to the next kServing
  std::chrono::steady_clock::time_point next_try_;
  std::chrono::milliseconds pause_{0};  // before the next try
  int failed_tries_ = 0;                // since all devices last served

  Mutex mu_;
  CondVar changed_;
  bool loss_reported_ ABSL_GUARDED_BY(mu_) = false;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  std::thread thread_;
};

// Returns the slots whose devices can be lost, by fault domain.
std::vector<std::vector<DeviceSlot*>> FaultDomains(const std::vector<DeviceSlot*>& slots);

}  // namespace tensord::server
