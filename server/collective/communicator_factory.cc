#include "tensord/server/collective/communicator_factory.h"

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
                                                               const CommunicatorMakers& makers) {
  const std::string missing = CollectivesUnavailableReason();
  if (!missing.empty()) {
    return absl::UnimplementedError(absl::StrCat("no collective operations: ", missing));
  }
  const auto maker = makers.find(device.name().kind);
  if (maker != makers.end() && maker->second != nullptr) {
    return maker->second(network, device, place);
  }
#ifdef TENSORD_HAVE_GLOO
  if (device.host_accessible()) return MakeGlooCommunicator(network, place);
#endif
  return absl::UnimplementedError(
      absl::StrCat("no collective operations on ", device.name().ToString(),
                   ": this server has no library for groups of such devices"));
}

}  // namespace tensord::server
