// Returns freed memory of the process to the system.
#pragma once

#include <chrono>
#include <functional>
#include <thread>
#include <vector>

#include "tensord/common/util/mutex.h"
#include "tensord/server/device/device.h"

namespace tensord::server {

// Devices, slabs and malloc keep freed memory for reuse. Every kInterval, a thread returns to the
// system the memory that was unused for the whole interval: idle blocks of devices, slabs without
// used blocks, and malloc's free memory if it is at least 8 MiB. So unused memory is returned
// within two intervals.
class MemoryReclaimer {
 public:
  static constexpr std::chrono::milliseconds kInterval{1500};

  // The devices must outlive this object. The thread calls `after_reclaim` at the end of each
  // round.
  MemoryReclaimer(std::vector<Device*> devices, std::function<void()> after_reclaim);
  ~MemoryReclaimer();

 private:
  void Run();

  const std::vector<Device*> devices_;
  const std::function<void()> after_reclaim_;
  Mutex mu_;
  CondVar wake_;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  std::thread thread_;
};

}  // namespace tensord::server
