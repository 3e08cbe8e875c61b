// The functions that the shared library exports: those of NCCL that the server uses. They act on
// the emulated devices and streams of the program that has loaded the library.
#include <nccl.h>

#include <list>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tensord/common/util/mutex.h"
#include "tensord/tests/cuda_emulation/control.h"
#include "tensord/tests/cuda_emulation/device.h"
#include "tensord/tests/cuda_emulation/failure.h"
#include "tensord/tests/cuda_emulation/nccl/collective.h"
#include "tensord/tests/cuda_emulation/nccl/communicator.h"
#include "tensord/tests/cuda_emulation/nccl/hub.h"
#include "tensord/tests/cuda_emulation/nccl/last_error.h"
#include "tensord/tests/cuda_emulation/nccl/unique_id.h"

namespace tensord::nccl_emulation {
namespace {

constexpr unsigned kConfigMagic = 0xcafebeef;  // of NCCL_CONFIG_INITIALIZER

// The hubs that this process has started. Thread-safe.
class Hubs {
 public:
  void Add(std::unique_ptr<Hub> hub) {
    MutexLock lock(&mu_);
    hubs_.remove_if([](const auto& old) { return old->finished(); });
    hubs_.push_back(std::move(hub));
  }

 private:
  Mutex mu_;
  std::list<std::unique_ptr<Hub>> hubs_ ABSL_GUARDED_BY(mu_);
};

Hubs& TheHubs() {
  static Hubs hubs;  // destroyed at exit, so that the hubs' threads end
  return hubs;
}

// The communicators that have not been aborted. A handle is a number that is never used again.
// Thread-safe.
class Communicators {
 public:
  ncclComm_t Add(std::shared_ptr<Communicator> communicator) {
    MutexLock lock(&mu_);
    auto* handle = reinterpret_cast<ncclComm_t>(next_handle_);
    next_handle_ += 16;
    live_[handle] = std::move(communicator);
    return handle;
  }
  // Both return null if there is no such communicator.
  std::shared_ptr<Communicator> Find(ncclComm_t handle) {
    MutexLock lock(&mu_);
    const auto found = live_.find(handle);
    return found == live_.end() ? nullptr : found->second;
  }
  std::shared_ptr<Communicator> Take(ncclComm_t handle) {
    MutexLock lock(&mu_);
    auto node = live_.extract(handle);
    return node.empty() ? nullptr : std::move(node.mapped());
  }

 private:
  Mutex mu_;
  uintptr_t next_handle_ ABSL_GUARDED_BY(mu_) = 0x1000;
  std::map<ncclComm_t, std::shared_ptr<Communicator>> live_ ABSL_GUARDED_BY(mu_);
};

Communicators& TheCommunicators() {
  static auto* communicators = new Communicators;  // never destroyed
  return *communicators;
}

ncclResult_t Refuse(ncclResult_t result, const char* call, absl::string_view why) {
  const std::string text = absl::StrCat(call, ": ", why);
  cuda_emulation::Report(text);
  SetLastError(text);
  return result;
}

ncclResult_t RefuseHandle(const char* call) {
  return Refuse(ncclInvalidArgument, call, "there is no such communicator");
}

ncclResult_t Collect(const Operation& op, const void* input, void* output, ncclComm_t comm,
                     cudaStream_t stream) {
  const std::shared_ptr<Communicator> communicator = TheCommunicators().Find(comm);
  if (communicator == nullptr) return RefuseHandle(FunctionName(op));
  return StartCollective(communicator, op, input, output, stream);
}

}  // namespace
}  // namespace tensord::nccl_emulation

using namespace tensord::nccl_emulation;  // NOLINT(google-build-using-namespace)

// The first statement of a function. If an error is injected, returns it from the function.
#define TENSORD_EMULATION_ENTER_NCCL()                                             \
  if (const auto tensord_injected =                                                \
          static_cast<ncclResult_t>(tensord::cuda_emulation::CountCall(__func__)); \
      tensord_injected != ncclSuccess)                                             \
  return tensord_injected

extern "C" {

ncclResult_t ncclGetUniqueId(ncclUniqueId* unique_id) {
  TENSORD_EMULATION_ENTER_NCCL();
  std::string error;
  std::unique_ptr<Hub> hub = Hub::Start(&error);
  if (hub == nullptr) return Refuse(ncclSystemError, "ncclGetUniqueId", error);
  *unique_id = Encode(hub->id());
  TheHubs().Add(std::move(hub));
  return ncclSuccess;
}

// Ignores the configuration except `blocking`, which must be 0.
ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int size, ncclUniqueId unique_id, int rank,
                                    ncclConfig_t* config) {
  TENSORD_EMULATION_ENTER_NCCL();
  static constexpr char kCall[] = "ncclCommInitRankConfig";
  if (comm == nullptr) return Refuse(ncclInvalidArgument, kCall, "comm is null");
  *comm = nullptr;
  const int device = tensord::cuda_emulation::CurrentDevice();
  if (const cudaError_t error =
          tensord::cuda_emulation::UseContext(device, "ncclCommInitRankConfig's context");
      error != cudaSuccess) {
    return Refuse(ncclUnhandledCudaError, kCall, absl::StrCat("CUDA error ", error));
  }
  if (config != nullptr && config->magic != kConfigMagic) {
    return Refuse(ncclInvalidArgument, kCall, "the configuration has not been initialized");
  }
  if (config == nullptr || config->blocking != 0) {
    return Refuse(ncclInvalidUsage, kCall, "blocking communicators are not emulated");
  }
  if (size < 1 || rank < 0 || rank >= size) {
    return Refuse(ncclInvalidArgument, kCall,
                  absl::StrCat("rank ", rank, " is out of range: there are ", size, " ranks"));
  }
  const std::optional<UniqueId> id = Decode(unique_id);
  if (!id.has_value()) {
    return Refuse(ncclInvalidArgument, kCall, "ncclGetUniqueId() hasn't made this unique id");
  }
  *comm = TheCommunicators().Add(std::make_shared<Communicator>(*id, rank, size, device));
  return ncclInProgress;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* error) {
  TENSORD_EMULATION_ENTER_NCCL();
  const std::shared_ptr<Communicator> communicator = TheCommunicators().Find(comm);
  if (communicator == nullptr) return RefuseHandle("ncclCommGetAsyncError");
  *error = communicator->state();
  return ncclSuccess;
}

// Makes enqueued operations end soon, but doesn't wait for their end.
ncclResult_t ncclCommAbort(ncclComm_t comm) {
  if (comm == nullptr) return ncclSuccess;
  const std::shared_ptr<Communicator> communicator = TheCommunicators().Take(comm);
  if (communicator == nullptr) return RefuseHandle("ncclCommAbort");
  communicator->Abort();
  return ncclSuccess;
}

// Ignores `comm`: returns the last error of any communicator of the process, as NCCL does.
const char* ncclGetLastError(ncclComm_t /*comm*/) { return LastError(); }

const char* ncclGetErrorString(ncclResult_t result) {
  switch (result) {
    case ncclSuccess:
      return "no error";
    case ncclUnhandledCudaError:
      return "unhandled cuda error";
    case ncclSystemError:
      return "unhandled system error";
    case ncclInternalError:
      return "internal error";
    case ncclInvalidArgument:
      return "invalid argument";
    case ncclInvalidUsage:
      return "invalid usage";
    case ncclRemoteError:
      return "remote process exited or there was a network error";
    case ncclInProgress:
      return "NCCL operation in progress";
    default:
      return "unknown result code";
  }
}

ncclResult_t ncclAllReduce(const void* input, void* output, size_t count, ncclDataType_t type,
                           ncclRedOp_t reduction, ncclComm_t comm, cudaStream_t stream) {
  return Collect({Collective::kAllReduce, type, reduction, 0, count}, input, output, comm, stream);
}

ncclResult_t ncclReduceScatter(const void* input, void* output, size_t count, ncclDataType_t type,
                               ncclRedOp_t reduction, ncclComm_t comm, cudaStream_t stream) {
  return Collect({Collective::kReduceScatter, type, reduction, 0, count}, input, output, comm,
                 stream);
}

ncclResult_t ncclAllGather(const void* input, void* output, size_t count, ncclDataType_t type,
                           ncclComm_t comm, cudaStream_t stream) {
  return Collect({Collective::kAllGather, type, ncclSum, 0, count}, input, output, comm, stream);
}

ncclResult_t ncclBroadcast(const void* input, void* output, size_t count, ncclDataType_t type,
                           int root, ncclComm_t comm, cudaStream_t stream) {
  return Collect({Collective::kBroadcast, type, ncclSum, root, count}, input, output, comm, stream);
}

}  // extern "C"
