// Tests whether a new device works.
#pragma once

#include "absl/status/status.h"
#include "tensord/server/device/device.h"

namespace tensord::server {

// Executor thread. Adds numbers on the device and checks the sums. This uses the device's memory,
// both directions of transfer, a kernel and a fence. Waits at most 10 seconds for the fence.
// Returns DEADLINE_EXCEEDED if the kernel does not end in that time, INTERNAL if the sums are
// wrong, and otherwise the device's error.
absl::Status SelfTest(Device& device);

}  // namespace tensord::server
