// Groups of devices whose memory the host can access, by Gloo.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "tensord/server/collective/communicator.h"

namespace tensord::server {

// The communicator reads and writes the tensors in place, without staging. If it can't listen,
// returns UNAVAILABLE.
absl::StatusOr<std::unique_ptr<Communicator>> MakeGlooCommunicator(const CollectiveNetwork& network,
                                                                   const GroupPlace& place);

}  // namespace tensord::server
