// Makes the devices that --devices names.
#pragma once

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "tensord/server/device/backend.h"
#include "tensord/server/device/device.h"
#include "tensord/server/device/fault/fault_plan.h"

namespace tensord::server {

// One logical device to be made: "cpu", "cuda:1", "cpu=2GiB", "cuda:0=8GiB". The default limit is
// an equal share, among the logical devices without a limit, of the physical device's memory,
// except what its backend reserves.
struct DeviceRequest {
  DeviceKind kind;
  int physical_index = 0;
  int64_t limit_bytes = 0;  // 0: the default
  bool faulty = false;      // has the faults that a test asks for: "faulty:cpu=1GiB"
};

// "cpu,cpu=1GiB,cuda:0" -> requests. INVALID_ARGUMENT with the accepted form otherwise.
absl::StatusOr<std::vector<DeviceRequest>> ParseDevices(absl::string_view text);

// Makes logical devices in the order asked for, numbered per kind: "cpu,cpu" gives cpu:0 and cpu:1.
// An empty list gives one device of each physical device of each backend. `host_threads` are shared
// out among the devices of each kind that uses them, at least one each; 0 means as many as the host
// has. Errors: INVALID_ARGUMENT for a kind without a backend, and for a limit past the physical
// device's memory, which would never refuse anything before the system does. UNAVAILABLE with the
// backend's reason for a physical device that isn't there. FAILED_PRECONDITION for a faulty device
// if `faults` is null; otherwise they are added to `faults`, which must outlive them.
absl::StatusOr<std::vector<std::unique_ptr<Device>>> MakeDevices(
    absl::Span<const Backend> backends, const std::vector<DeviceRequest>& requests,
    int host_threads, FaultPlans* faults = nullptr);

// The same with the built-in backends.
absl::StatusOr<std::vector<std::unique_ptr<Device>>> MakeDevices(
    const std::vector<DeviceRequest>& requests, int host_threads, FaultPlans* faults = nullptr);

}  // namespace tensord::server
