// Backends: the kinds of devices that this server can make.
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

class CollectiveNetwork;
class Communicator;
struct GroupPlace;

// Makes the communicator of a member of a group (communicator/communicator.h). `device` must
// outlive the communicator.
using CommunicatorMaker = absl::StatusOr<std::unique_ptr<Communicator>> (*)(
    const CollectiveNetwork& network, Device& device, const GroupPlace& place);

// A logical device to be made.
struct DeviceOptions {
  DeviceName name;
  int physical_index = 0;
  int64_t limit_bytes = 0;  // > 0: the limit of the memory of all its buffers
  int threads = 1;          // host threads that compute for the device, if its backend uses any
};

// A kind of device and the functions that make devices of it. All functions are thread-safe. A
// function must be set, unless its comment says what null means.
struct Backend {
  DeviceKind kind;

  // Returns the number of physical devices. If it is 0, sets `reason` to the cause, such as "no
  // NVIDIA driver found".
  std::function<int(std::string* reason)> count;
  // Returns the name of a physical device for messages: "GPU 1".
  std::function<std::string(int physical_index)> physical_name;
  // Returns the bytes of memory of a physical device.
  std::function<absl::StatusOr<int64_t>(int physical_index)> total_memory;
  // Returns how many of `total_bytes` bytes the default limits leave free. Null means 0.
  std::function<int64_t(int64_t total_bytes)> reserved_memory;
  std::function<absl::StatusOr<std::unique_ptr<Device>>(const DeviceOptions& options)> make;
  // Makes a physical device usable again after a fault. All its logical devices must have been
  // abandoned. Null means that devices of this kind can't be restarted.
  std::function<absl::Status(int physical_index)> reset;
  // Returns how many host threads the devices of this kind share. Null means that they use none.
  std::function<int()> host_threads;
  // Null means that devices whose memory the host can access join groups by Gloo, and that other
  // devices can't join groups.
  CommunicatorMaker make_communicator = nullptr;
};

// Returns a backend without devices, for a kind that this program was built without. `reason` is
// the text of its errors.
Backend UnavailableBackend(DeviceKind kind, std::string reason);

// Names a kind of which this host has no device, and the reason.
struct UnavailableKind {
  DeviceKind kind;
  std::string reason;
};
// Returns the kinds of `backends` that have no physical device.
std::vector<UnavailableKind> UnavailableKinds(absl::Span<const Backend> backends);

// Returns the backends of this program. The first is the CPU's.
std::vector<Backend> BuiltInBackends();

}  // namespace tensord::server
