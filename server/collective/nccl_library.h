// NCCL, loaded when it is first needed: a server starts without it.
#pragma once

#include <nccl.h>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace tensord::server {

// What is used of it.
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

  // OK for ncclSuccess and, as calls don't block, for ncclInProgress. ABORTED where another rank is
  // lost, INTERNAL otherwise, with what NCCL says.
  absl::Status ToStatus(ncclResult_t result, ncclComm_t comm, absl::string_view call) const;
};

// The same for the life of the process. UNIMPLEMENTED saying why where it can't be loaded.
absl::StatusOr<const NcclLibrary*> LoadNccl();

}  // namespace tensord::server
