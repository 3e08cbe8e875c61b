// Tests whether a new device works.
#pragma once

#include "absl/status/status.h"
#include "tensord/server/device/device.h"

namespace tensord::server {

// Executor thread. Adds numbers on the device and checks the sums. This uses its memory, both
// directions of transfer, a kernel and a fence. Blocks for 10 seconds at most. Returns the device's
// error; if the sums are wrong, INTERNAL; if the kernel does not end in time, DEADLINE_EXCEEDED.
absl::Status SelfTest(Device& device);

}  // namespace tensord::server
