// The CPU backend: kernels on the host's processors.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "tensord/common/device_name.h"
#include "tensord/server/device/backend.h"
#include "tensord/server/device/device.h"

namespace tensord::server {

// Makes a logical CPU device that holds at most `limit_bytes` (> 0) in buffers. It computes on
// `threads` (>= 1) threads, including the executor's. Kernels run synchronously: their results are
// complete when Launch() returns. The device keeps freed memory for reuse, at most 1 GiB and at
// most a quarter of the limit. This memory doesn't count as used. If an argument isn't positive,
// returns INVALID_ARGUMENT.
absl::StatusOr<std::unique_ptr<Device>> MakeCpuDevice(DeviceName name, int64_t limit_bytes,
                                                      int threads);

// Returns the backend of the CPU. Its only physical device is the host.
Backend CpuBackend();

// Returns the host's memory in bytes that this process may use.
int64_t CpuTotalMemory();
// Returns the number of the host's processors that this process may use.
int CpuThreads();
// Returns how many threads this process may have (host_info.h).
int64_t CpuMaxThreads();

}  // namespace tensord::server
