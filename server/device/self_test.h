// Whether a device that has just been made does what devices are for.
#pragma once

#include "absl/status/status.h"
#include "tensord/server/device/device.h"

namespace tensord::server {

// Executor thread. Has the device add numbers and compares the sums: its memory, both directions of
// transfer, a kernel and a fence. Waits for a bounded time. The device's own error, INTERNAL where
// the sums are wrong, DEADLINE_EXCEEDED where it doesn't get there.
absl::Status SelfTest(Device& device);

}  // namespace tensord::server
