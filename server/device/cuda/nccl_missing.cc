// Replaces nccl_communicator.cc if the program is built without NCCL's header.
#include "absl/strings/str_cat.h"
#include "tensord/server/device/cuda/nccl_communicator.h"

namespace tensord::server {

absl::StatusOr<std::unique_ptr<Communicator>> MakeNcclCommunicator(const CollectiveNetwork&,
                                                                   Device& device,
                                                                   const GroupPlace&) {
  return absl::UnimplementedError(absl::StrCat("no collective operations on ",
                                               device.name().ToString(),
                                               ": this server was built without NCCL (nccl.h)"));
}

}  // namespace tensord::server
