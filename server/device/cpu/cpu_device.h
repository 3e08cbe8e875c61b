// The embedded backend: kernels on the host's own processors.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "tensord/common/device_name.h"
#include "tensord/server/device/backend.h"
#include "tensord/server/device/device.h"

namespace tensord::server {

// A logical CPU device that holds at most `limit_bytes` (> 0) in buffers and computes on `threads`
// (>= 1) threads, of which the executor's is one. Kernels run synchronously in Launch(), so memory
// may be dereferenced as soon as it returns. Freed memory is kept for reuse, up to a quarter of the
// limit and 1 GiB; that doesn't count as used.
absl::StatusOr<std::unique_ptr<Device>> MakeCpuDevice(DeviceName name, int64_t limit_bytes,
                                                      int threads);

// The backend of the CPU, whose one physical device is the host.
Backend CpuBackend();

// Memory of the host in bytes, as far as this process may use it, and its processors.
int64_t CpuTotalMemory();
int CpuThreads();

}  // namespace tensord::server
