#include "tensord/server/collective/nccl_communicator.h"

#include <stdlib.h>

#include <chrono>
#include <cstring>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tensord/common/status_macros.h"
#include "tensord/server/collective/mesh_communicator.h"
#include "tensord/server/collective/nccl_library.h"
#include "tensord/server/device/cuda/cuda_device.h"
#include "tensord/server/device/cuda/cuda_handles.h"
#include "tensord/server/device/cuda/cuda_status.h"

namespace tensord::server {
namespace {

using Clock = PeerMesh::Clock;

// How long the GPU is asked without a pause, and how long a pause then is.
constexpr auto kSpin = std::chrono::microseconds(200);
constexpr auto kPause = std::chrono::milliseconds(1);
// What is left to do by a member whose peer has done its own part and gone.
constexpr auto kLastPart = std::chrono::seconds(1);

ncclDataType_t TypeOf(DType dtype) {
  switch (dtype) {
    case DType::kFloat16:
      return ncclFloat16;
    case DType::kBFloat16:
      return ncclBfloat16;
    case DType::kFloat32:
      return ncclFloat32;
    case DType::kFloat64:
      return ncclFloat64;
    case DType::kInt32:
      return ncclInt32;
    default:
      return ncclInt64;
  }
}

ncclRedOp_t OpOf(CollectiveReduction reduction) {
  switch (reduction) {
    case CollectiveReduction::kMean:
      return ncclAvg;
    case CollectiveReduction::kMax:
      return ncclMax;
    case CollectiveReduction::kSum:
      break;
  }
  return ncclSum;
}

// Before NCCL first looks at it.
void NameInterface(const CollectiveNetwork& network) {
  static const int named =
      setenv("NCCL_SOCKET_IFNAME", absl::StrCat("=", network.interface()).c_str(), /*overwrite=*/0);
  static_cast<void>(named);
}

class NcclCommunicator final : public MeshCommunicator {
 public:
  NcclCommunicator(const NcclLibrary* nccl, Device* device, const GroupPlace& place,
                   std::unique_ptr<GroupListener> listener)
      : MeshCommunicator(place, std::move(listener)), nccl_(nccl), device_(device) {}

  ~NcclCommunicator() override {
    if (IsLost()) Abandon();
    if (comm_ == nullptr) return;
    const cuda::DeviceGuard guard(device_->info().physical_index);
    nccl_->CommAbort(comm_);
  }

  absl::string_view backend() const override { return "nccl"; }
  absl::Status Run(const CollectiveOp& op, const Buffer* input, Buffer* output) override;

 private:
  absl::Status Begin(const std::vector<std::string>& notes) override;
  absl::Status Enqueue(const CollectiveOp& op, const void* input, void* output,
                       int64_t output_elements);
  // Until NCCL has done what a call only began, and the GPU what `done` stands behind, if it isn't
  // null. Looks after the other members meanwhile.
  absl::Status Await(absl::string_view call, cudaEvent_t done);
  // Whether all that has come about.
  absl::StatusOr<bool> IsDone(absl::string_view call, cudaEvent_t done) const;
  // Whether the device has been lost since the group began, or brought back, which takes NCCL's
  // part on it, too.
  bool IsLost() const {
    const DeviceHealth health = device_->health();
    return !health.serving() || health.restarts != restarts_;
  }
  // Lets go of what went with the device, which must not be touched any more.
  void Abandon() {
    comm_ = nullptr;
    static_cast<void>(new cuda::Stream(std::move(stream_)));
  }
  // Tells the others.
  absl::Status Fail(absl::Status status);

  const NcclLibrary* const nccl_;
  Device* const device_;
  const int64_t restarts_ = device_->health().restarts;
  ncclComm_t comm_ = nullptr;
  cuda::Stream stream_;
};

absl::Status NcclCommunicator::Fail(absl::Status status) {
  if (!absl::IsDeadlineExceeded(status)) status = absl::AbortedError(status.message());
  mesh().Leave(status);
  return status;
}

absl::Status NcclCommunicator::Begin(const std::vector<std::string>& notes) {
  ncclUniqueId id;
  if (notes[0].size() != sizeof(id)) {
    return Fail(
        absl::AbortedError(absl::StrCat(mesh().names().Who(0),
                                        " of the group has given no unique id of NCCL's: all "
                                        "members of a group are on GPUs, or all on CPU devices")));
  }
  std::memcpy(&id, notes[0].data(), sizeof(id));
  const cuda::DeviceGuard guard(device_->info().physical_index);
  absl::StatusOr<cuda::Stream> stream = cuda::MakeStream();
  if (!stream.ok()) return Fail(stream.status());
  stream_ = *std::move(stream);
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  const ncclResult_t begun =
      nccl_->CommInitRankConfig(&comm_, mesh().size(), id, mesh().rank(), &config);
  const absl::Status status = nccl_->ToStatus(begun, comm_, "ncclCommInitRankConfig");
  return status.ok() ? Await("ncclCommInitRankConfig", nullptr) : Fail(status);
}

absl::Status NcclCommunicator::Enqueue(const CollectiveOp& op, const void* input, void* output,
                                       int64_t output_elements) {
  const ncclDataType_t type = TypeOf(op.spec.dtype);
  const auto elements = static_cast<size_t>(op.spec.num_elements());
  switch (op.kind) {
    case CollectiveKind::kAllReduce:
      return nccl_->ToStatus(
          nccl_->AllReduce(input, output, elements, type, OpOf(op.reduction), comm_, stream_.get()),
          comm_, "ncclAllReduce");
    case CollectiveKind::kReduceScatter:
      return nccl_->ToStatus(
          nccl_->ReduceScatter(input, output, static_cast<size_t>(output_elements), type,
                               OpOf(op.reduction), comm_, stream_.get()),
          comm_, "ncclReduceScatter");
    case CollectiveKind::kAllGather:
      return nccl_->ToStatus(nccl_->AllGather(input, output, elements, type, comm_, stream_.get()),
                             comm_, "ncclAllGather");
    case CollectiveKind::kBroadcast:
      return nccl_->ToStatus(
          nccl_->Broadcast(input, output, elements, type, op.root, comm_, stream_.get()), comm_,
          "ncclBroadcast");
    case CollectiveKind::kBarrier:
      break;
  }
  return absl::OkStatus();
}

absl::Status NcclCommunicator::Run(const CollectiveOp& op, const Buffer* input, Buffer* output) {
  if (op.spec.size_bytes() == 0) return absl::OkStatus();
  if (IsLost()) return Fail(absl::AbortedError("the GPU was lost, and the group with it"));
  if (input != nullptr) TENSORD_RETURN_IF_ERROR(AwaitCudaMemory(*input));
  if (output != nullptr) TENSORD_RETURN_IF_ERROR(AwaitCudaMemory(*output));
  const cuda::DeviceGuard guard(device_->info().physical_index);
  // Of a broadcast each member has one of them, and NCCL sends from and receives into the same.
  const void* from = input != nullptr ? input->data() : output->data();
  void* to = output != nullptr ? output->data() : input->data();
  const int64_t output_elements =
      (output != nullptr ? output : input)->size_bytes() / SizeOf(op.spec.dtype);
  absl::Status status = Enqueue(op, from, to, output_elements);
  if (!status.ok()) return Fail(status);
  TENSORD_RETURN_IF_ERROR(Await("NCCL", nullptr));
  absl::StatusOr<cuda::Event> done = cuda::MakeEvent();
  if (!done.ok()) return Fail(done.status());
  status = cuda::CudaStatus(cudaEventRecord(done->get(), stream_.get()), "cudaEventRecord");
  if (!status.ok()) return Fail(status);
  return Await("NCCL", done->get());
}

absl::StatusOr<bool> NcclCommunicator::IsDone(absl::string_view call, cudaEvent_t done) const {
  if (IsLost()) return absl::DataLossError("the GPU was lost");
  ncclResult_t state = ncclSuccess;
  TENSORD_RETURN_IF_ERROR(
      nccl_->ToStatus(nccl_->CommGetAsyncError(comm_, &state), comm_, "ncclCommGetAsyncError"));
  TENSORD_RETURN_IF_ERROR(nccl_->ToStatus(state, comm_, call));
  if (state == ncclInProgress) return false;
  if (done == nullptr) return true;
  const cudaError_t error = cudaEventQuery(done);
  if (error == cudaErrorNotReady) {
    cudaGetLastError();  // no error, but the runtime remembers it as one
    return false;
  }
  TENSORD_RETURN_IF_ERROR(cuda::CudaStatus(error, "cudaEventQuery"));
  return true;
}

absl::Status NcclCommunicator::Await(absl::string_view call, cudaEvent_t done) {
  const Clock::time_point start = Clock::now();
  Clock::time_point end = start + mesh().timeout();
  absl::Status lost;
  for (;;) {
    const absl::StatusOr<bool> is_done = IsDone(call, done);
    if (!is_done.ok()) return Fail(is_done.status());
    if (*is_done) return absl::OkStatus();
    const Clock::time_point now = Clock::now();
    if (now >= end) break;
    if (now < start + kSpin) {
      std::this_thread::yield();
    } else if (lost.ok()) {
      lost = mesh().WatchFor(kPause);
      if (!lost.ok()) end = std::min(end, now + kLastPart);
    } else {
      std::this_thread::sleep_for(kPause);
    }
  }
  // Its kernel would wait for the others for ever: only this ends it.
  nccl_->CommAbort(comm_);
  comm_ = nullptr;
  if (!lost.ok()) return lost;
  return Fail(absl::DeadlineExceededError(
      absl::StrCat(mesh().names().Who(mesh().rank()), " waited ", mesh().timeout().count(),
                   " ms for ", call, "; make another group to go on")));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Communicator>> MakeNcclCommunicator(const CollectiveNetwork& network,
                                                                   Device& device,
                                                                   const GroupPlace& place) {
  NameInterface(network);
  TENSORD_ASSIGN_OR_RETURN(const NcclLibrary* nccl, LoadNccl());
  std::string note;
  if (place.rank == 0) {
    ncclUniqueId id;
    TENSORD_RETURN_IF_ERROR(nccl->ToStatus(nccl->GetUniqueId(&id), nullptr, "ncclGetUniqueId"));
    note.assign(reinterpret_cast<const char*>(&id), sizeof(id));
  }
  TENSORD_ASSIGN_OR_RETURN(
      auto listener, GroupListener::Listen(network, place.rank, place.size, place.group_id, note));
  return std::make_unique<NcclCommunicator>(nccl, &device, place, std::move(listener));
}

}  // namespace tensord::server
