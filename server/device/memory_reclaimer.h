// Returns freed memory of the process to the system.
#pragma once

#include <chrono>
#include <thread>
#include <vector>

#include "tensord/common/util/mutex.h"
#include "tensord/server/device/device.h"

namespace tensord::server {

// Devices, slabs and malloc keep freed memory, because work that repeats uses it again. A thread
// looks every kInterval for what has been unused since it last looked, and returns that to the
// system. So memory is back within two intervals after it was freed.
class MemoryReclaimer {
 public:
  static constexpr std::chrono::milliseconds kInterval{1500};

  // The devices must outlive this object.
  explicit MemoryReclaimer(std::vector<Device*> devices);
  ~MemoryReclaimer();

 private:
  void Run();

  const std::vector<Device*> devices_;
  Mutex mu_;
  CondVar wake_;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  std::thread thread_;
};

}  // namespace tensord::server
