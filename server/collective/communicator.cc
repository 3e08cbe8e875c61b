#include "tensord/server/collective/communicator.h"

#include "absl/strings/str_cat.h"
#ifdef TENSORD_HAVE_GLOO
#include "tensord/server/collective/gloo_communicator.h"
#endif

namespace tensord::server {

std::string CollectivesUnavailableReason() {
#ifdef TENSORD_HAVE_GLOO
  return "";
#else
  return "this server was built without Gloo (libgloo-dev)";
#endif
}

absl::StatusOr<std::unique_ptr<Communicator>> MakeCommunicator(const CollectiveNetwork& network,
                                                               Device& device,
                                                               const GroupPlace& place,
                                                               CommunicatorMaker make_on_gpu) {
  const std::string missing = CollectivesUnavailableReason();
  if (!missing.empty()) {
    return absl::UnimplementedError(absl::StrCat("no collective operations: ", missing));
  }
#ifdef TENSORD_HAVE_GLOO
  if (device.host_accessible()) return MakeGlooCommunicator(network, place);
#endif
  if (make_on_gpu != nullptr) return make_on_gpu(network, device, place);
  return absl::UnimplementedError(absl::StrCat("no collective operations on ",
                                               device.name().ToString(),
                                               ": this server was built without NCCL (nccl.h)"));
}

}  // namespace tensord::server
