// Makes communicators: by a backend's own library, or by Gloo.
#pragma once

#include <memory>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "tensord/server/communicator/communicator.h"
#include "tensord/server/communicator/network.h"
#include "tensord/server/device/backend.h"

namespace tensord::server {

// Returns why CPU devices can't be members of groups; empty if they can.
std::string CollectivesUnavailableReason();

// The makers of communicators, by kind of device. A kind may be absent.
using CommunicatorMakers = absl::flat_hash_map<DeviceKind, CommunicatorMaker>;

// Makes the communicator of a member on `device`: by the maker of its kind, or by Gloo if the kind
// has none and the host can access the device's memory. If the device can't be a member of groups,
// or the server was built without Gloo, returns UNIMPLEMENTED that names what is missing.
absl::StatusOr<std::unique_ptr<Communicator>> MakeCommunicator(const CollectiveNetwork& network,
                                                               Device& device,
                                                               const GroupPlace& place,
                                                               const CommunicatorMakers& makers);

}  // namespace tensord::server
