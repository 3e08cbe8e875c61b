// Groups of devices whose memory the host can reach, by Gloo.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "tensord/server/collective/communicator.h"

namespace tensord::server {

// Reads and writes tensors where they lie. UNAVAILABLE where it can't listen.
absl::StatusOr<std::unique_ptr<Communicator>> MakeGlooCommunicator(const CollectiveNetwork& network,
                                                                   const GroupPlace& place);

}  // namespace tensord::server
