// The faults that a test has ordered for a device.
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
#include "tensord/common/util/mutex.h"

namespace tensord::server {

// The orders for one logical device, over all its restarts. Thread-safe.
class FaultPlan {
 public:
  // The steps that may fail.
  enum class Step { kAllocation, kKernel, kCopy, kFence };

  explicit FaultPlan(DeviceName device) : device_(device) {}

  // Executes one order. Its words are separated by blanks:
  //   alloc N          the Nth allocation from now on fails with RESOURCE_EXHAUSTED;
  //                    the device is not lost
  //   kernel N         the Nth kernel from now on fails, and the device is lost
  //   copy N           the Nth copy from now on fails, and the device is lost; this includes copies
  //                    to and from the host if they go through the device
  //   fence N          the Nth fence from now on finds that the device is lost
  //   die              the device is lost now, although no call has failed
  //   delay-kernel MS  kernels that don't run inline take MS milliseconds longer from now on
  //   delay-copy MS    copies take MS milliseconds longer from now on
  //   delay-fence MS   fences take MS milliseconds longer from now on
  //   no-return N      the next N attempts to restart the device fail
  //   clear            cancels all orders; a device that is lost stays lost
  // If the order is invalid, returns INVALID_ARGUMENT with the cause.
  absl::Status Apply(absl::string_view order);

  // The device calls this at each step. If `may_be_late`, blocks for the step's delay. Then returns
  // OK, or the fault that is due.
  absl::Status At(Step step, bool may_be_late = true);
  // Must be called when the device is made. If "no-return" orders a failure, returns an error.
  absl::Status Make();
  // If "die" was ordered since the last call, returns DATA_LOSS. Otherwise returns OK.
  absl::Status ConsumeLoss();

 private:
  static constexpr int kSteps = 4;

  absl::Status SetCount(absl::string_view word, int64_t count);
  absl::Status SetDelay(absl::string_view word, int64_t delay_ms);

  const DeviceName device_;
  Mutex mu_;
  // For each kind of step, the number of steps until the fault. 0 means that no fault is due.
  std::array<int64_t, kSteps> due_ ABSL_GUARDED_BY(mu_) = {};
  std::array<std::chrono::milliseconds, kSteps> delay_ ABSL_GUARDED_BY(mu_) = {};
  int64_t failing_makes_ ABSL_GUARDED_BY(mu_) = 0;
  bool dead_ ABSL_GUARDED_BY(mu_) = false;
};

// The plans of a server, by device. Thread-safe.
class FaultPlans {
 public:
  // Returns the plan of a device. The first call makes it. The reference is valid while this object
  // exists.
  FaultPlan& Add(DeviceName device);

  // Executes a line with a device and an order for it: "cpu:0 kernel 3". If there is no such faulty
  // device, or no order, returns NOT_FOUND. Otherwise returns the errors of FaultPlan::Apply().
  absl::Status Apply(absl::string_view line);

 private:
  Mutex mu_;
  std::map<std::string, std::unique_ptr<FaultPlan>> plans_ ABSL_GUARDED_BY(mu_);
};

}  // namespace tensord::server
