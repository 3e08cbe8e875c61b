#include <utility>

#include "tensord/common/util/status_macros.h"
#include "tensord/server/device/cuda/cuda_device_internal.h"
#include "tensord/server/device/cuda/cuda_status.h"

namespace tensord::server::cuda {

CudaBuffer::CudaBuffer(CudaDevice* device, MemoryOrder order, void* data, int64_t size_bytes)
    : Buffer(device, data, size_bytes), order_(order) {}

CudaBuffer::~CudaBuffer() { static_cast<CudaDevice&>(device()).Release(*this); }

bool PeerRead::over() {
  MutexLock lock(&mu_);
  if (event_.get() == nullptr) return true;
  const bool over = cudaEventQuery(event_.get()) == cudaSuccess;
  cudaGetLastError();  // clears "not ready", which the runtime reports as an error
  return over;
}

absl::Status PeerRead::Order(cudaStream_t stream) {
  MutexLock lock(&mu_);
  if (event_.get() == nullptr) return absl::OkStatus();
  TENSORD_CUDA_RETURN_IF_ERROR(cudaStreamWaitEvent(stream, event_.get(), 0));
  return absl::OkStatus();
}

void PeerRead::Await() {
  MutexLock lock(&mu_);
  // If this fails, the reader is lost, so the copy no longer runs.
  if (event_.get() != nullptr) AwaitEvent(event_.get());
}

void PeerRead::DestroyEvent() {
  MutexLock lock(&mu_);
  event_ = Event();
}

void RemoveEnded(std::vector<PeerReadRef>* reads) {
  std::erase_if(*reads, [](const PeerReadRef& read) { return read->over(); });
}

void CudaBuffer::AddReader(PeerReadRef read) const {
  MutexLock lock(&mu_);
  RemoveEnded(&readers_);  // so that a buffer that is copied many times doesn't collect them
  readers_.push_back(std::move(read));
}

std::vector<PeerReadRef> CudaBuffer::TakeReaders() {
  MutexLock lock(&mu_);
  return std::exchange(readers_, {});
}

absl::Status CudaBuffer::OrderTransfersOnce(absl::FunctionRef<absl::Status()> order) {
  MutexLock lock(&mu_);
  if (transfers_ordered_) return absl::OkStatus();
  TENSORD_RETURN_IF_ERROR(order());
  transfers_ordered_ = true;
  return absl::OkStatus();
}

absl::Status CudaBuffer::TransferEnded(absl::Status status) {
  if (!status.ok()) {
    MutexLock lock(&mu_);
    transfers_ordered_ = false;
  }
  return status;
}

bool CudaBuffer::has_transfers() const {
  MutexLock lock(&mu_);
  return transfers_ordered_;
}

}  // namespace tensord::server::cuda
