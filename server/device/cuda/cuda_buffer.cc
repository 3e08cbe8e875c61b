#include <utility>

#include "tensord/common/status_macros.h"
#include "tensord/server/device/cuda/cuda_device_internal.h"

namespace tensord::server::cuda {

CudaBuffer::CudaBuffer(CudaDevice* device, void* data, int64_t size_bytes)
    : Buffer(device, data, size_bytes) {}

CudaBuffer::~CudaBuffer() { static_cast<CudaDevice&>(device()).Release(*this); }

void CudaBuffer::AddReader(Event event) const {
  MutexLock lock(&mu_);
  // A buffer copied time and again keeps only those whose copy isn't over.
  std::erase_if(readers_, [](const Event& e) { return cudaEventQuery(e.get()) == cudaSuccess; });
  cudaGetLastError();  // "not ready" is no error, but the runtime remembers it as one
  readers_.push_back(std::move(event));
}

std::vector<Event> CudaBuffer::TakeReaders() {
  MutexLock lock(&mu_);
  return std::exchange(readers_, {});
}

absl::Status CudaBuffer::OrderUploadsOnce(const std::function<absl::Status()>& order) {
  MutexLock lock(&mu_);
  if (uploads_ordered_) return absl::OkStatus();
  TENSORD_RETURN_IF_ERROR(order());
  uploads_ordered_ = true;
  return absl::OkStatus();
}

}  // namespace tensord::server::cuda
