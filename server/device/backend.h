// Backends: what this server can make devices of.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "tensord/common/device_name.h"
#include "tensord/server/device/device.h"

namespace tensord::server {

class Communicator;
struct CollectiveNetwork;
struct GroupPlace;

// Makes the communicator of a member of a group (collective/communicator.h). `device` must outlive
// it.
using CommunicatorMaker = absl::StatusOr<std::unique_ptr<Communicator>> (*)(
    const CollectiveNetwork& network, Device& device, const GroupPlace& place);

// A logical device to be made.
struct DeviceOptions {
  DeviceName name;
  int physical_index = 0;
  int64_t limit_bytes = 0;  // > 0: how much its buffers may hold
  int threads = 1;          // of the host that compute for it, if its backend uses any
};

// A kind of device and the functions that make devices of it. All functions are thread-safe. Those
// without a comment on null must be set.
struct Backend {
  DeviceKind kind;

  // Returns how many physical devices there are. If there is none, sets `reason` to the cause, such
  // as "no NVIDIA driver found".
  std::function<int(std::string* reason)> count;
  // Returns how a message names a physical device: "GPU 1".
  std::function<std::string(int physical_index)> physical_name;
  // Returns the bytes of memory of a physical device.
  std::function<absl::StatusOr<int64_t>(int physical_index)> total_memory;
  // Returns how many of `total_bytes` the default limits leave free. Null: none.
  std::function<int64_t(int64_t total_bytes)> reserved_memory;
  std::function<absl::StatusOr<std::unique_ptr<Device>>(const DeviceOptions& options)> make;
  // Makes a physical device usable again after a fault, when no device is left on it. Null: devices
  // of this kind don't come back.
  std::function<absl::Status(int physical_index)> reset;
  // Returns how many threads of the host the devices of this kind share. Null: they use none.
  std::function<int()> host_threads;
  // Null: its devices are members of groups by Gloo if the host can access their memory, and
  // otherwise can't be members.
  CommunicatorMaker make_communicator = nullptr;
};

// A backend that this program was built without. `reason` says so.
Backend UnavailableBackend(DeviceKind kind, std::string reason);

// A kind of which this host has no device, and why.
struct UnavailableKind {
  DeviceKind kind;
  std::string reason;
};
std::vector<UnavailableKind> UnavailableKinds(absl::Span<const Backend> backends);

// The backends of this program. The first is the CPU's.
std::vector<Backend> BuiltInBackends();

}  // namespace tensord::server
