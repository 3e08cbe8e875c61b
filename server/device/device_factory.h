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

// One logical device to be made: "cpu", "cuda:1", "cpu=2GiB", "cuda:0=8GiB". The logical devices of
// a physical device that have no limit of their own share its memory equally, except the bytes that
// the backend reserves. That share is the default limit.
struct DeviceRequest {
  DeviceKind kind;
  int physical_index = 0;
  int64_t limit_bytes = 0;  // 0: the default
  bool faulty = false;      // a test can inject faults into it: "faulty:cpu=1GiB"
};

// Parses a list such as "cpu,cpu=1GiB,cuda:0". If `text` is invalid, returns INVALID_ARGUMENT with
// the accepted form. An empty text gives an empty list.
absl::StatusOr<std::vector<DeviceRequest>> ParseDevices(absl::string_view text);

// Makes logical devices in the order of `requests`, numbered per kind: "cpu,cpu" gives cpu:0 and
// cpu:1. If `requests` is empty, makes one device for each physical device of each backend. The
// devices of each kind that uses host threads share `host_threads` threads, at least one each. 0
// means as many as the backend has. Adds the plans of faulty devices to `faults`, which must
// outlive the devices. Errors:
//   INVALID_ARGUMENT     a kind without a backend, or a limit above the physical device's memory
//   UNAVAILABLE          a physical device that doesn't exist, with the backend's reason
//   FAILED_PRECONDITION  a faulty device although `faults` is null
// Also returns the errors of the backends.
absl::StatusOr<std::vector<std::unique_ptr<Device>>> MakeDevices(
    absl::Span<const Backend> backends, const std::vector<DeviceRequest>& requests,
    int host_threads, FaultPlans* faults = nullptr);

// Does the same with the built-in backends.
absl::StatusOr<std::vector<std::unique_ptr<Device>>> MakeDevices(
    const std::vector<DeviceRequest>& requests, int host_threads, FaultPlans* faults = nullptr);

}  // namespace tensord::server
