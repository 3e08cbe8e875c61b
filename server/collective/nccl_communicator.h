// Groups of CUDA devices, by NCCL.
#pragma once

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "tensord/server/collective/communicator.h"

namespace tensord::server {

// Members agree over connections of their own, as others do, and NCCL carries the elements, by ways
// that it finds itself: NVLink, InfiniBand, or the interface of `network`, unless
// NCCL_SOCKET_IFNAME names another. What NCCL listens at knows its callers by a random number of
// the unique id alone. UNIMPLEMENTED where NCCL can't be loaded. `device` outlives it.
absl::StatusOr<std::unique_ptr<Communicator>> MakeNcclCommunicator(const CollectiveNetwork& network,
                                                                   Device& device,
                                                                   const GroupPlace& place);

// Has the GPUs of the CUDA backend be members of groups by NCCL. Does nothing if this program was
// built without NCCL or `backends` has no CUDA backend.
void AddNccl(std::vector<Backend>& backends);

}  // namespace tensord::server
