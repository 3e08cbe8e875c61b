#include "tensord/server/device/cuda/nccl_communicator.h"

#include <stdlib.h>

#include <chrono>
#include <cstring>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "tensord/common/util/status_macros.h"
#include "tensord/server/communicator/mesh_communicator.h"
#include "tensord/server/device/cuda/cuda_device.h"
#include "tensord/server/device/cuda/cuda_handles.h"
#include "tensord/server/device/cuda/cuda_status.h"
#include "tensord/server/device/cuda/nccl_library.h"
#include "tensord/server/device/cuda/nccl_operation.h"
#include "tensord/server/device/cuda/stream_notice.h"

namespace tensord::server {
namespace {

using Clock = PeerMesh::Clock;

// How long a thread polls before it sleeps. Short operations end within this time, and waking a
// thread takes about as long.
constexpr auto kSpin = std::chrono::microseconds(50);
// How long a thread sleeps between polls while a NCCL call is in progress. NCCL sends no
// notification when ncclInProgress ends. Nearly all calls are enqueued within kSpin. Only the first
// call takes longer, because it connects the members.
constexpr auto kPause = std::chrono::milliseconds(1);
// After another member has left: how long this member may take to finish the operation. After an
// error of NCCL: how long this member waits for another member to report the cause.
constexpr auto kGracePeriod = std::chrono::seconds(1);
// How often a waiting thread checks for errors of NCCL and of the GPU, for which there are no
// notifications either. The loss of a member is noticed at once.
constexpr auto kErrorCheckPeriod = std::chrono::milliseconds(50);

// Tells NCCL which network interface to use. Call it before NCCL's first use.
void NameInterface(const CollectiveNetwork& network) {
  static const int named =
      setenv("NCCL_SOCKET_IFNAME", absl::StrCat("=", network.interface()).c_str(), /*overwrite=*/0);
  static_cast<void>(named);
}

class NcclCommunicator final : public MeshCommunicator {
 public:
  // `empty_buffer` is a buffer of no bytes on the member's device.
  NcclCommunicator(const NcclLibrary* nccl, BufferRef empty_buffer, const GroupPlace& place,
                   std::unique_ptr<GroupListener> listener)
      : MeshCommunicator(place, std::move(listener)),
        nccl_(nccl),
        empty_buffer_(std::move(empty_buffer)) {}

  ~NcclCommunicator() override {
    CallOnCudaDevice(*empty_buffer_, [this] {
      if (IsLost()) return absl::OkStatus();
      Abort();
      stream_ = cuda::Stream();
      return absl::OkStatus();
    }).IgnoreError();
    // If the device is lost, the stream's handle is no longer valid and must not be destroyed.
    stream_.Release();
  }

  absl::string_view backend() const override { return "nccl"; }
  absl::Status Run(const CollectiveOp& op, const Buffer* input, Buffer* output) override;

 private:
  absl::Status Begin(const std::vector<std::string>& notes) override;
  absl::Status BeginOnDevice(const std::vector<std::string>& notes);
  absl::Status RunOnDevice(const CollectiveOp& op, const Buffer* input, Buffer* output);
  // Runs `call` through CallOnCudaDevice(). If `call` fails, aborts NCCL: its kernels access no
  // buffer after CallNccl() has returned.
  absl::Status CallNccl(absl::FunctionRef<absl::Status()> call);
  // Blocks until NCCL has finished `call` and, if `notice` isn't null, until the stream has reached
  // its point. Meanwhile watches the other members.
  absl::Status Await(absl::string_view call, StreamNotice* notice);
  // Returns true if NCCL has finished `call`. If NCCL or the GPU has an error, returns that error.
  absl::StatusOr<bool> IsEnqueued(absl::string_view call) const;
  // Returns true if the device has been lost since this member was made. NCCL's state on the device
  // is then lost, too.
  bool IsLost() const { return empty_buffer_->device().loss() != nullptr; }
  // Aborts NCCL's communicator and blocks until its kernels have ended. If the device is lost, does
  // nothing.
  void Abort();
  // Returns the cause of an error of NCCL. NCCL reports that a connection was lost, but not to
  // which member. So this function waits up to kGracePeriod for another member's report, and
  // returns the report. If there is none, calls Fail(error).
  absl::Status ReasonOf(const absl::Status& error);
  // Leaves the group and sends `status` to the other members. Returns DEADLINE_EXCEEDED unchanged,
  // other errors as ABORTED.
  absl::Status Fail(absl::Status status);

  const NcclLibrary* const nccl_;
  // A buffer without bytes. It names the device for CallOnCudaDevice(), and keeps the device alive.
  const BufferRef empty_buffer_;
  ncclComm_t comm_ = nullptr;
  cuda::Stream stream_;
};

absl::Status NcclCommunicator::Fail(absl::Status status) {
  if (!absl::IsDeadlineExceeded(status)) status = absl::AbortedError(status.message());
  mesh().Leave(status);
  return status;
}

absl::Status NcclCommunicator::CallNccl(absl::FunctionRef<absl::Status()> call) {
  bool called = false;
  const absl::Status status = CallOnCudaDevice(*empty_buffer_, [&] {
    called = true;
    absl::Status result = call();
    if (!result.ok()) Abort();
    return result;
  });
  return status.ok() || called ? status : Fail(status);
}

void NcclCommunicator::Abort() {
  if (comm_ == nullptr || IsLost()) return;
  nccl_->CommAbort(std::exchange(comm_, nullptr));
  const auto ended = std::make_shared<StreamNotice>(nullptr);
  StreamNotice::Enqueue(ended, stream_.get()).IgnoreError();  // without the notice, this polls
  while (!IsLost() && !ended->happened() && cudaStreamQuery(stream_.get()) == cudaErrorNotReady) {
    ended->WaitFor(kErrorCheckPeriod);
  }
  cudaGetLastError();  // clears cudaErrorNotReady
}

absl::Status NcclCommunicator::Begin(const std::vector<std::string>& notes) {
  return CallNccl([&] { return BeginOnDevice(notes); });
}

absl::Status NcclCommunicator::BeginOnDevice(const std::vector<std::string>& notes) {
  ncclUniqueId id;
  if (notes[0].size() != sizeof(id)) {
    return Fail(
        absl::AbortedError(absl::StrCat(mesh().names().Describe(0),
                                        " of the group has sent no unique id of NCCL: all members "
                                        "of a group must be on GPUs, or all on CPU devices")));
  }
  std::memcpy(&id, notes[0].data(), sizeof(id));
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

absl::Status NcclCommunicator::Run(const CollectiveOp& op, const Buffer* input, Buffer* output) {
  if (op.spec.size_bytes() == 0) return absl::OkStatus();
  return CallNccl([&] { return RunOnDevice(op, input, output); });
}

absl::Status NcclCommunicator::RunOnDevice(const CollectiveOp& op, const Buffer* input,
                                           Buffer* output) {
  if (IsLost()) return Fail(absl::AbortedError("the GPU was lost, and the group with it"));
  // NCCL's stream waits for the buffers, so this thread doesn't wait. The stream doesn't wait for
  // kernels that use neither buffer.
  if (input != nullptr) {
    TENSORD_RETURN_IF_ERROR(OrderAfterCudaUploads(*input, stream_.get()));
  }
  if (output != nullptr) {
    TENSORD_RETURN_IF_ERROR(OrderAfterCudaAllocation(*output, stream_.get()));
  }
  // In a broadcast each member has only one of the two buffers, and NCCL gets it as both.
  const void* from = input != nullptr ? input->data() : output->data();
  void* to = output != nullptr ? output->data() : input->data();
  const int64_t output_elements =
      (output != nullptr ? output : input)->size_bytes() / SizeOf(op.spec.dtype);
  absl::Status status =
      EnqueueOperation(*nccl_, op, from, to, output_elements, comm_, stream_.get());
  if (!status.ok()) return ReasonOf(status);
  TENSORD_RETURN_IF_ERROR(Await("NCCL", nullptr));
  // The operation is in the stream now, so the notice comes after it.
  const auto notice = std::make_shared<StreamNotice>(&mesh());
  status = StreamNotice::Enqueue(notice, stream_.get());
  status = status.ok() ? Await("NCCL", notice.get()) : Fail(status);
  notice->Disconnect();
  return status;
}

absl::Status NcclCommunicator::ReasonOf(const absl::Status& error) {
  const Clock::time_point end = Clock::now() + kGracePeriod;
  while (absl::IsAborted(error) && Clock::now() < end) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - Clock::now());
    const absl::Status reason = mesh().WatchFor(left);
    if (!reason.ok()) return reason;
  }
  return Fail(error);
}

absl::StatusOr<bool> NcclCommunicator::IsEnqueued(absl::string_view call) const {
  if (IsLost()) return absl::DataLossError("the GPU was lost");
  ncclResult_t state = ncclSuccess;
  TENSORD_RETURN_IF_ERROR(
      nccl_->ToStatus(nccl_->CommGetAsyncError(comm_, &state), comm_, "ncclCommGetAsyncError"));
  TENSORD_RETURN_IF_ERROR(nccl_->ToStatus(state, comm_, call));
  const cudaError_t error = cudaStreamQuery(stream_.get());
  if (error != cudaErrorNotReady) {
    TENSORD_RETURN_IF_ERROR(cuda::CudaStatus(error, "cudaStreamQuery"));
  }
  cudaGetLastError();  // clears cudaErrorNotReady
  return state != ncclInProgress;
}

absl::Status NcclCommunicator::Await(absl::string_view call, StreamNotice* notice) {
  const Clock::time_point start = Clock::now();
  Clock::time_point end = start + mesh().timeout();
  absl::Status lost;
  for (;;) {
    const Clock::time_point now = Clock::now();
    const bool spins = now < start + kSpin;
    const bool happened = notice == nullptr || notice->happened();
    if (happened || !spins) {
      // This check comes after happened(): NCCL reports an operation's error before the operation
      // ends.
      const absl::StatusOr<bool> enqueued = IsEnqueued(call);
      if (!enqueued.ok()) return lost.ok() ? ReasonOf(enqueued.status()) : lost;
      if (happened && *enqueued) return absl::OkStatus();
    }
    if (now >= end) break;
    if (spins) {
      std::this_thread::yield();
      continue;
    }
    const auto pause = std::min(notice == nullptr ? kPause : kErrorCheckPeriod,
                                std::chrono::ceil<std::chrono::milliseconds>(end - now));
    if (lost.ok()) {
      lost = mesh().WatchFor(pause);  // returns early if the notice wakes the mesh
      if (!lost.ok()) end = std::min(end, now + kGracePeriod);
    } else if (notice != nullptr) {
      notice->WaitFor(pause);
    } else {
      std::this_thread::sleep_for(pause);
    }
  }
  // NCCL's kernel still waits for the other members. CallNccl() aborts it after this function has
  // returned, so that the other members get the error first.
  if (!lost.ok()) return lost;
  return Fail(absl::DeadlineExceededError(
      absl::StrCat(mesh().names().Describe(mesh().rank()), " waited ", mesh().timeout().count(),
                   " ms for ", call, "; make another group to continue")));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Communicator>> MakeNcclCommunicator(const CollectiveNetwork& network,
                                                                   Device& device,
                                                                   const GroupPlace& place) {
  NameInterface(network);
  TENSORD_ASSIGN_OR_RETURN(const NcclLibrary* nccl, LoadNccl());
  TENSORD_ASSIGN_OR_RETURN(BufferRef empty_buffer, device.Allocate(0));
  std::string note;
  if (place.rank == 0) {
    ncclUniqueId id;
    TENSORD_RETURN_IF_ERROR(nccl->ToStatus(nccl->GetUniqueId(&id), nullptr, "ncclGetUniqueId"));
    note.assign(reinterpret_cast<const char*>(&id), sizeof(id));
  }
  TENSORD_ASSIGN_OR_RETURN(
      auto listener, GroupListener::Listen(network, place.rank, place.size, place.group_id, note));
  return std::make_unique<NcclCommunicator>(nccl, std::move(empty_buffer), place,
                                            std::move(listener));
}

}  // namespace tensord::server
