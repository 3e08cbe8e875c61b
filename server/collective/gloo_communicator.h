// A communicator between devices whose memory the host can access. It uses Gloo.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "tensord/server/communicator/communicator.h"
#include "tensord/server/communicator/network.h"

namespace tensord::server {

// Returns a communicator that reads and writes the tensors' memory directly, without staging. If
// the member can't listen, returns UNAVAILABLE.
absl::StatusOr<std::unique_ptr<Communicator>> MakeGlooCommunicator(const CollectiveNetwork& network,
                                                                   const GroupPlace& place);

}  // namespace tensord::server
