// From the words of --devices to devices.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "tensord/server/device/device.h"
#include "tensord/server/device/fault/fault_plan.h"

namespace tensord::server {

// One logical device to be made. "cpu", "cuda:1", "cpu=2GiB", "cuda:0=8GiB": kind, physical index
// (default 0) and memory limit. The default limit is an equal share, among the logical devices
// without a limit, of the physical device's memory. On a GPU, 1/16 of the memory, at most 2 GiB, is
// left to the driver.
struct DeviceRequest {
  DeviceKind kind = DeviceKind::kUnspecified;
  int physical_index = 0;
  int64_t limit_bytes = 0;  // 0: the default
  bool faulty = false;      // has the faults that a test asks for: "faulty:cpu=1GiB"
};

// "cpu,cpu=1GiB,cuda:0" -> requests. INVALID_ARGUMENT with the accepted form otherwise.
absl::StatusOr<std::vector<DeviceRequest>> ParseDevices(absl::string_view text);

// Logical devices in the order asked for, numbered per kind: "cpu,cpu" gives cpu:0 and cpu:1.
// An empty list gives every GPU there is and one CPU device. `cpu_threads` are shared out among the
// CPU devices, at least one each; 0 means as many as the host has.
// INVALID_ARGUMENT for a limit past the physical device's memory, which would never refuse anything
// before the system does. UNAVAILABLE with the driver's reason where a cuda device was asked for
// and can't be had. Faulty devices are added to `faults`, which outlives them; FAILED_PRECONDITION
// where it is null.
absl::StatusOr<std::vector<std::unique_ptr<Device>>> MakeDevices(
    const std::vector<DeviceRequest>& requests, int cpu_threads, FaultPlans* faults = nullptr);

// Why there is no GPU to serve: "built without CUDA", "no NVIDIA driver found"; empty where there
// is one.
std::string CudaUnavailableReason();

}  // namespace tensord::server
