// The choice of a device for programs that name none. A GPU here is any device that isn't a CPU, so
// programs use devices of every kind that servers offer.
#pragma once

#include <algorithm>
#include <vector>

#include "tensord/client/device.h"

namespace tensord::internal {

inline bool IsGpu(const Device& device) { return device.kind() != DeviceKind::kCpu; }
inline bool IsFirstCpu(const Device& device) {
  return device.id() == DeviceName{DeviceKind::kCpu, 0};
}

// Returns the GPU with index `i` among the GPUs of `devices`. If there is none, returns the first
// cpu:0. If there is none, returns a Device that isn't valid().
inline Device ChooseDevice(const std::vector<Device>& devices, int i) {
  for (const Device& device : devices) {
    if (IsGpu(device) && i-- == 0) return device;
  }
  for (const Device& device : devices) {
    if (IsFirstCpu(device)) return device;
  }
  return Device();
}

// Returns the GPUs of `devices`. If there is none, returns the cpu:0 of each server.
inline std::vector<Device> ChooseDevices(const std::vector<Device>& devices) {
  std::vector<Device> gpus, cpus;
  for (const Device& device : devices) {
    if (IsGpu(device)) gpus.push_back(device);
    if (IsFirstCpu(device)) cpus.push_back(device);
  }
  return gpus.empty() ? cpus : gpus;
}

inline int CountDevices(const std::vector<Device>& devices, DeviceKind kind) {
  return static_cast<int>(std::count_if(
      devices.begin(), devices.end(), [&](const Device& device) { return device.kind() == kind; }));
}

}  // namespace tensord::internal
