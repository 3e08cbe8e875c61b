// The faults that a test orders for a device.
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
  // Where a fault may strike.
  enum class Step { kAllocation, kKernel, kCopy, kFence };

  explicit FaultPlan(DeviceName device) : device_(device) {}

  // Takes one order. Its words are separated by blanks:
  //   alloc N          the Nth allocation from now on fails with RESOURCE_EXHAUSTED;
  //                   the device is not lost
  //   kernel N         the Nth kernel from now on fails, and the device is lost
  //   copy N           the same for copies: between devices, and to and from the host if they go
  //                    through the device
  //   fence N          the Nth fence from now on finds that the device is lost
  //   die              the device is lost now, without a call that meets the fault
  //   delay-kernel MS  kernels that don't run inline take MS milliseconds longer from now on
  //   delay-copy MS    the same for copies
  //   delay-fence MS   the same for fences
  //   no-return N      the next N attempts to restart the device fail
  //   clear            withdraws all orders; a device that is lost stays lost
  // If the order is invalid, returns INVALID_ARGUMENT that says why.
  absl::Status Take(absl::string_view order);

  // Blocks for the delay that was ordered, if `may_be_late`. Then returns OK, or the fault that is
  // due.
  absl::Status At(Step step, bool may_be_late = true);
  // Returns an error if the device must not be made now.
  absl::Status Make();
  // If the device was ordered to die, returns why, once: to the backend device that exists then.
  // Otherwise returns OK.
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

// The plans of a server, by device. Thread-safe.
class FaultPlans {
 public:
  // The reference is valid while this object exists.
  FaultPlan& Add(DeviceName device);

  // Takes a device and an order for it: "cpu:0 kernel 3". If that device is not faulty, returns
  // NOT_FOUND.
  absl::Status Take(absl::string_view line);

 private:
  Mutex mu_;
  std::map<std::string, std::unique_ptr<FaultPlan>> plans_ ABSL_GUARDED_BY(mu_);
};

}  // namespace tensord::server
