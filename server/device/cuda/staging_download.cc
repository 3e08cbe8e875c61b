#include <algorithm>
#include <cstring>
#include <deque>
#include <utility>

#include "tensord/common/util/status_macros.h"
#include "tensord/server/device/cuda/cuda_status.h"
#include "tensord/server/device/cuda/staging.h"

namespace tensord::server::cuda {

absl::StatusOr<std::unique_ptr<DownloadRing>> DownloadRing::Create() {
  TENSORD_ASSIGN_OR_RETURN(StagingMemory<Slot> staging, StagingMemory<Slot>::Allocate());
  std::unique_ptr<DownloadRing> ring(new DownloadRing);
  ring->memory_ = std::move(staging.memory);
  ring->stream_ = std::move(staging.stream);
  ring->slots_ = std::move(staging.slots);
  for (Slot& slot : ring->slots_) ring->Release(&slot);
  return ring;
}

DownloadRing::~DownloadRing() {
  if (stream_.get() != nullptr) cudaStreamSynchronize(stream_.get());
}

DownloadRing::Slot* DownloadRing::Claim(bool wait) {
  MutexLock lock(&mu_);
  while (free_.empty()) {
    if (!wait) return nullptr;
    released_.Wait(&mu_);
  }
  Slot* slot = free_.back();
  free_.pop_back();
  return slot;
}

void DownloadRing::Release(Slot* slot) {
  MutexLock lock(&mu_);
  free_.push_back(slot);
  released_.Signal();
}

absl::Status DownloadRing::Start(const Piece& piece, const char* src) {
  TENSORD_CUDA_RETURN_IF_ERROR(cudaMemcpyAsync(piece.slot->host, src + piece.offset,
                                               static_cast<size_t>(piece.bytes),
                                               cudaMemcpyDeviceToHost, stream_.get()));
  const cudaError_t error = cudaEventRecord(piece.slot->done.get(), stream_.get());
  // There is no event after which the slot may be used again, so this thread waits.
  if (error != cudaSuccess) cudaStreamSynchronize(stream_.get());
  return CudaStatus(error, "cudaEventRecord");
}

absl::Status DownloadRing::Finish(const Piece& piece, char* dst) {
  if (const cudaError_t error = cudaEventSynchronize(piece.slot->done.get());
      error != cudaSuccess) {
    cudaStreamSynchronize(stream_.get());  // the caller may reuse the source and the slot
    return CudaStatus(error, "cudaEventSynchronize");
  }
  std::memcpy(dst + piece.offset, piece.slot->host, static_cast<size_t>(piece.bytes));
  return absl::OkStatus();
}

absl::Status DownloadRing::Download(void* dst, const void* src, int64_t bytes) {
  const int64_t piece_bytes = StagingPieceBytes(bytes);
  std::deque<Piece> started;
  absl::Status status;
  int64_t offset = 0;
  while (true) {
    while (status.ok() && offset < bytes) {
      // A caller that holds a slot doesn't wait for another, so callers can't block each other.
      Slot* slot = Claim(/*wait=*/started.empty());
      if (slot == nullptr) break;
      const Piece piece{slot, offset, std::min(piece_bytes, bytes - offset)};
      status = Start(piece, static_cast<const char*>(src));
      if (!status.ok()) {
        Release(slot);
        break;
      }
      started.push_back(piece);
      offset += piece.bytes;
    }
    if (started.empty()) return status;
    const Piece piece = started.front();
    started.pop_front();
    // Waits for the piece also after a failure: a slot is free only when the copy to it has ended.
    const absl::Status finished = Finish(piece, static_cast<char*>(dst));
    if (status.ok()) status = finished;
    Release(piece.slot);
  }
}

}  // namespace tensord::server::cuda
