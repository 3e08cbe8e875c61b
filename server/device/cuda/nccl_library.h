// NCCL, loaded when it is first needed: a server can start without it.
#pragma once

#include <nccl.h>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace tensord::server {

// The functions of NCCL that the server uses.
struct NcclLibrary {
  decltype(&ncclGetUniqueId) GetUniqueId = nullptr;
  decltype(&ncclCommInitRankConfig) CommInitRankConfig = nullptr;
  decltype(&ncclCommGetAsyncError) CommGetAsyncError = nullptr;
  decltype(&ncclCommAbort) CommAbort = nullptr;
  decltype(&ncclGetErrorString) GetErrorString = nullptr;
  decltype(&ncclGetLastError) GetLastError = nullptr;
  decltype(&ncclAllReduce) AllReduce = nullptr;
  decltype(&ncclReduceScatter) ReduceScatter = nullptr;
  decltype(&ncclAllGather) AllGather = nullptr;
  decltype(&ncclBroadcast) Broadcast = nullptr;

  // Returns OK for ncclSuccess, and for ncclInProgress because calls don't block. If another rank
  // is lost, returns ABORTED, otherwise INTERNAL. The message contains NCCL's.
  absl::Status ToStatus(ncclResult_t result, ncclComm_t comm, absl::string_view call) const;
};

// Thread-safe. Loads NCCL at the first call. Later calls return the same result. If it can't be
// loaded, returns UNIMPLEMENTED with the reason.
absl::StatusOr<const NcclLibrary*> LoadNccl();

}  // namespace tensord::server
