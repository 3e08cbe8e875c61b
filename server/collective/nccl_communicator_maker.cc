#include "tensord/server/collective/nccl_communicator.h"

namespace tensord::server {

CommunicatorMaker NcclCommunicatorMaker() {
#ifdef TENSORD_HAVE_NCCL
  return &MakeNcclCommunicator;
#else
  return nullptr;
#endif
}

}  // namespace tensord::server
