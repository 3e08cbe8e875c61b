// A device of a server, and its memory.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <memory>
#include <optional>
#include <string>

#include "tensord/common/device_name.h"

namespace tensord {

namespace internal {
class Session;
}

// Bytes on one logical device.
struct MemoryInfo {
  int64_t total_bytes = 0;  // of the physical device
  int64_t limit_bytes = 0;  // the limit for all tensors together
  // Held by tensors when the server answered, with the copies of weights that it keeps for speed.
  int64_t used_bytes = 0;
  // The maximum of used_bytes, without these copies, since the server started.
  int64_t peak_bytes = 0;
};

// Says whether a device can be used.
enum class DeviceState {
  kUnknown,    // the server is too old to report it
  kServing,    // it accepts work
  kLost,       // it has failed, and its tensors are lost
  kResetting,  // the server is resetting it after a failure
};

// "serving", "lost", "resetting"; "unknown".
inline std::string DeviceStateName(DeviceState state) {
  switch (state) {
    case DeviceState::kServing:
      return "serving";
    case DeviceState::kLost:
      return "lost";
    case DeviceState::kResetting:
      return "resetting";
    case DeviceState::kUnknown:
      break;
  }
  return "unknown";
}

// What a server reports about a device.
struct DeviceInfo {
  DeviceName name;                 // cuda:1
  std::string model;               // "AMD EPYC 9654", "NVIDIA H100 80GB HBM3"
  std::string uuid;                // the same for logical devices on one physical device
  std::string compute_capability;  // "9.0"; empty for a CPU
  int threads = 0;                 // a CPU device's threads; 0 for a GPU
  MemoryInfo memory;
  DeviceState state = DeviceState::kUnknown;
  std::string state_reason;  // why it can't be used; empty if it can
  int64_t restarts = 0;      // how often it was reset after a failure since the server started
  // The share of the last moments in which a kernel of any process ran on the physical device. A
  // CPU has no value, and neither has a GPU whose driver doesn't report it.
  std::optional<int> utilization_percent;
  // The memory of the physical device that other processes hold, in bytes. In a container this may
  // include the server's own CUDA context. A CPU has no value, and neither has a GPU whose driver
  // doesn't report it.
  std::optional<int64_t> others_bytes;
};

// A device of a connected server, as Client and Cluster return it. Cheap to copy. Thread-safe. A
// Device keeps its client's connection open, as a Tensor does.
class Device {
 public:
  // Makes a Device that isn't valid(). A tensor made on it has the error FAILED_PRECONDITION.
  Device() = default;

  bool valid() const { return session_ != nullptr; }
  explicit operator bool() const { return valid(); }

  // Returns "cuda:0"; for a server of a cluster "gpu-a/cuda:0". If the device isn't valid, returns
  // "none".
  std::string name() const;
  DeviceKind kind() const { return id_.kind; }
  int index() const { return id_.index; }
  DeviceName id() const { return id_; }
  // Returns the manufacturer's name, such as "NVIDIA H100 80GB HBM3". If the device isn't valid,
  // returns "".
  std::string model() const;

  // Returns whether both are the same device of the same connection.
  friend bool operator==(const Device& a, const Device& b) {
    return a.session_ == b.session_ && a.id_ == b.id_;
  }
  friend bool operator!=(const Device& a, const Device& b) { return !(a == b); }

  // Only the library uses this: `session` is the session that the device belongs to.
  Device(std::shared_ptr<internal::Session> session, DeviceName id)
      : session_(std::move(session)), id_(id) {}
  const std::shared_ptr<internal::Session>& session() const { return session_; }

 private:
  std::shared_ptr<internal::Session> session_;
  DeviceName id_;
};

std::ostream& operator<<(std::ostream& out, const Device& device);

}  // namespace tensord
