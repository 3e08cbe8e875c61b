// Which faults a device is to have, for tests.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "tensord/common/device_name.h"
#include "tensord/common/mutex.h"

namespace tensord::server {

// Of one logical device, over all its lives. Thread-safe.
class FaultPlan {
 public:
  // Where a fault may strike.
  enum class Step { kAllocation, kKernel, kCopy, kFence };

  explicit FaultPlan(DeviceName device) : device_(device) {}

  // One order, words apart by blanks:
  //   alloc N          the Nth allocation from now on fails with RESOURCE_EXHAUSTED; nothing is
  //   lost kernel N         the Nth kernel from now on breaks off, and the device is lost copy N
  //   the same for copies: between devices, and to and from the host where they go
  //                    through the device
  //   fence N          the Nth fence from now on finds the device lost
  //   die              the device is lost now, while nobody asks anything of it
  //   delay-kernel MS  kernels that don't run inline take that much longer from now on
  //   delay-copy MS    copies do
  //   delay-fence MS   fences do
  //   no-return N      the next N tries to bring the device back fail
  //   clear            none of these any more, but what is lost stays lost
  // INVALID_ARGUMENT saying what is wrong.
  absl::Status Take(absl::string_view order);

  // Waits where it is to be late, then: OK, or the fault that is due.
  absl::Status At(Step step, bool may_be_late = true);
  // Whether a device can be made.
  absl::Status Make();
  // Why the device that there is now is dead, if it is: told to one life of it.
  absl::Status TakeDeath();

 private:
  static constexpr int kSteps = 4;

  absl::Status SetCount(absl::string_view word, int64_t count);
  absl::Status SetDelay(absl::string_view word, int64_t delay_ms);

  const DeviceName device_;
  Mutex mu_;
  std::array<int64_t, kSteps> due_ ABSL_GUARDED_BY(mu_) = {};  // steps until a fault; 0: none
  std::array<std::chrono::milliseconds, kSteps> delay_ ABSL_GUARDED_BY(mu_) = {};
  int64_t failing_makes_ ABSL_GUARDED_BY(mu_) = 0;
  bool dead_ ABSL_GUARDED_BY(mu_) = false;
};

// Those of a daemon, by device. Thread-safe.
class FaultPlans {
 public:
  // Stays where it is.
  FaultPlan& Add(DeviceName device);

  // "cpu:0 kernel 3": a device and an order for it. NOT_FOUND where that device isn't faulty.
  absl::Status Take(absl::string_view line);

 private:
  Mutex mu_;
  std::map<std::string, std::unique_ptr<FaultPlan>> plans_ ABSL_GUARDED_BY(mu_);
};

}  // namespace tensord::server
