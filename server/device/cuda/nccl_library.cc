#include "tensord/server/device/cuda/nccl_library.h"

#include <dlfcn.h>

#include "absl/strings/str_cat.h"

namespace tensord::server {
namespace {

// The library of the major version that this program was compiled for.
constexpr char kLibrary[] = "libnccl.so.2";

absl::StatusOr<const NcclLibrary*> Load() {
  void* handle = dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    return absl::UnimplementedError(
        absl::StrCat("no collective operations between GPUs: NCCL can't be loaded: ", dlerror()));
  }
  static NcclLibrary library;
  const char* missing = nullptr;
  const auto find = [&](auto* function, const char* name) {
    *function = reinterpret_cast<std::remove_pointer_t<decltype(function)>>(dlsym(handle, name));
    if (*function == nullptr) missing = name;
  };
  find(&library.GetUniqueId, "ncclGetUniqueId");
  find(&library.CommInitRankConfig, "ncclCommInitRankConfig");
  find(&library.CommGetAsyncError, "ncclCommGetAsyncError");
  find(&library.CommAbort, "ncclCommAbort");
  find(&library.GetErrorString, "ncclGetErrorString");
  find(&library.GetLastError, "ncclGetLastError");
  find(&library.AllReduce, "ncclAllReduce");
  find(&library.ReduceScatter, "ncclReduceScatter");
  find(&library.AllGather, "ncclAllGather");
  find(&library.Broadcast, "ncclBroadcast");
  if (missing == nullptr) return &library;
  return absl::UnimplementedError(absl::StrCat("no collective operations between GPUs: ", kLibrary,
                                               " is too old: it has no ", missing));
}

}  // namespace

absl::Status NcclLibrary::ToStatus(ncclResult_t result, ncclComm_t comm,
                                   absl::string_view call) const {
  if (result == ncclSuccess || result == ncclInProgress) return absl::OkStatus();
  const char* more = GetLastError(comm);
  const std::string message = absl::StrCat(
      call, ": ", GetErrorString(result), more == nullptr ? "" : "; ", more == nullptr ? "" : more);
  return result == ncclRemoteError ? absl::AbortedError(message) : absl::InternalError(message);
}

absl::StatusOr<const NcclLibrary*> LoadNccl() {
  static const absl::StatusOr<const NcclLibrary*>* const loaded =
      new absl::StatusOr<const NcclLibrary*>(Load());
  return *loaded;
}

}  // namespace tensord::server
