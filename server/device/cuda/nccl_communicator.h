// A communicator between CUDA devices. It uses NCCL.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "tensord/server/communicator/communicator.h"
#include "tensord/server/communicator/network.h"
#include "tensord/server/device/device.h"

namespace tensord::server {

// The members agree over the connections of MeshCommunicator. NCCL transfers the elements. It
// chooses the path: NVLink, InfiniBand, or the interface of `network`, unless NCCL_SOCKET_IFNAME
// names another one. NCCL's own listeners authenticate a peer only by a random number of the unique
// id. If NCCL can't be loaded, or this program was built without it, returns UNIMPLEMENTED.
// `device` must outlive the communicator.
absl::StatusOr<std::unique_ptr<Communicator>> MakeNcclCommunicator(const CollectiveNetwork& network,
                                                                   Device& device,
                                                                   const GroupPlace& place);

}  // namespace tensord::server
