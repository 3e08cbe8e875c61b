#include "tensord/server/collective/nccl_communicator.h"

namespace tensord::server {

void AddNccl(std::vector<Backend>& backends) {
#ifdef TENSORD_HAVE_NCCL
  for (Backend& backend : backends) {
    if (backend.kind == DeviceKind::kCuda) backend.make_communicator = &MakeNcclCommunicator;
  }
#endif
}

}  // namespace tensord::server
