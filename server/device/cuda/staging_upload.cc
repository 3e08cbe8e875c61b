#include <algorithm>
#include <utility>

#include "tensord/common/util/status_macros.h"
#include "tensord/server/device/cuda/cuda_status.h"
#include "tensord/server/device/cuda/staging.h"

namespace tensord::server::cuda {

int64_t StagingPieceBytes(int64_t bytes) {
  constexpr int64_t kMinBytes = 256 << 10;
  constexpr int64_t kPieces = 4;
  constexpr int64_t kMultiple = 4096;
  const int64_t share = (bytes / kPieces + kMultiple - 1) / kMultiple * kMultiple;
  return std::clamp(share, kMinBytes, kStagingSlotBytes);
}

absl::Status CopyPinned(void* dst, const void* src, int64_t bytes, cudaMemcpyKind direction,
                        cudaStream_t stream, EventPool& events) {
  TENSORD_ASSIGN_OR_RETURN(Event event, events.Acquire());
  TENSORD_CUDA_RETURN_IF_ERROR(
      cudaMemcpyAsync(dst, src, static_cast<size_t>(bytes), direction, stream));
  cudaError_t error = cudaEventRecord(event.get(), stream);
  // The caller may overwrite `src` and free `dst` after this returns, even after an error.
  if (error != cudaSuccess) {
    error = cudaStreamSynchronize(stream);
  } else if (error = AwaitEvent(event.get()); error != cudaSuccess) {
    cudaStreamSynchronize(stream);
  }
  events.Return(std::move(event));
  return CudaStatus(error, "copying between pinned memory and the device");
}

absl::StatusOr<std::unique_ptr<UploadRing>> UploadRing::Create() {
  TENSORD_ASSIGN_OR_RETURN(StagingMemory<Slot> staging, StagingMemory<Slot>::Allocate());
  std::unique_ptr<UploadRing> ring(new UploadRing);
  ring->memory_ = std::move(staging.memory);
  ring->stream_ = std::move(staging.stream);
  ring->slots_ = std::move(staging.slots);
  return ring;
}

UploadRing::~UploadRing() {
  if (stream_.get() != nullptr) cudaStreamSynchronize(stream_.get());
}

UploadRing::Slot* UploadRing::OldestUnclaimed() {
  Slot* oldest = nullptr;
  for (Slot& slot : slots_) {
    if (!slot.claimed && (oldest == nullptr || slot.last_use < oldest->last_use)) oldest = &slot;
  }
  return oldest;
}

absl::StatusOr<UploadRing::Slot*> UploadRing::Claim() {
  Slot* slot = nullptr;
  bool in_flight = false;
  {
    MutexLock lock(&mu_);
    while ((slot = OldestUnclaimed()) == nullptr) unclaimed_.Wait(&mu_);
    slot->claimed = true;
    in_flight = slot->in_flight;
  }
  if (!in_flight) return slot;
  const cudaError_t error = cudaEventSynchronize(slot->done.get());
  // The next caller fills the slot again, so its copy must have ended.
  if (error != cudaSuccess) cudaStreamSynchronize(stream_.get());
  MutexLock lock(&mu_);
  SetInFlight(slot, false);
  if (error == cudaSuccess) return slot;
  slot->claimed = false;
  unclaimed_.Signal();
  return CudaStatus(error, "cudaEventSynchronize");
}

void UploadRing::SetInFlight(Slot* slot, bool in_flight) {
  if (slot->in_flight != in_flight) in_flight_ += in_flight ? 1 : -1;
  slot->in_flight = in_flight;
}

absl::Status UploadRing::Submit(Slot* slot, char* dst, int64_t bytes) {
  cudaError_t error = cudaMemcpyAsync(dst, slot->host, static_cast<size_t>(bytes),
                                      cudaMemcpyHostToDevice, stream_.get());
  if (error == cudaSuccess) {
    error = cudaEventRecord(slot->done.get(), stream_.get());
    // There is no event after which the slot may be filled again, so this thread waits.
    if (error != cudaSuccess) cudaStreamSynchronize(stream_.get());
  }
  MutexLock lock(&mu_);
  SetInFlight(slot, error == cudaSuccess);
  slot->last_use = ++uses_;
  slot->dst = dst;
  slot->bytes = bytes;
  slot->claimed = false;
  unclaimed_.Signal();
  return CudaStatus(error, "cudaMemcpyAsync to the device");
}

absl::Status UploadRing::Upload(void* dst, int64_t bytes, Device::Fill fill) {
  const int64_t piece_bytes = StagingPieceBytes(bytes);
  for (int64_t offset = 0; offset < bytes; offset += piece_bytes) {
    const int64_t piece = std::min(piece_bytes, bytes - offset);
    TENSORD_ASSIGN_OR_RETURN(Slot * slot, Claim());
    fill(offset, piece, slot->host);
    TENSORD_RETURN_IF_ERROR(Submit(slot, static_cast<char*>(dst) + offset, piece));
  }
  return absl::OkStatus();
}

absl::Status UploadRing::OrderAfterUploads(const void* data, int64_t bytes, cudaStream_t stream) {
  if (in_flight_ == 0) return absl::OkStatus();
  const auto* begin = static_cast<const char*>(data);
  MutexLock lock(&mu_);
  for (Slot& slot : slots_) {
    if (!slot.in_flight || slot.dst >= begin + bytes || begin >= slot.dst + slot.bytes) continue;
    const cudaError_t state = cudaEventQuery(slot.done.get());
    if (state == cudaErrorNotReady) {
      cudaGetLastError();  // clears "not ready", which the runtime reports as an error
      TENSORD_CUDA_RETURN_IF_ERROR(cudaStreamWaitEvent(stream, slot.done.get(), 0));
    } else if (state == cudaSuccess) {
      SetInFlight(&slot, false);
    } else {
      return CudaStatus(state, "cudaEventQuery of an upload");  // the slot stays in flight
    }
  }
  return absl::OkStatus();
}

}  // namespace tensord::server::cuda
