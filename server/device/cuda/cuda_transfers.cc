// Transfers, and the order of streams that they require.
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tensord/common/util/status_macros.h"
#include "tensord/server/device/cuda/cuda_device_internal.h"
#include "tensord/server/device/cuda/cuda_status.h"
#include "tensord/server/device/cuda/host_registration.h"

namespace tensord::server::cuda {

absl::Status CudaDevice::OrderRetireAfter(const std::vector<PeerReadRef>& readers) {
  TENSORD_RETURN_IF_ERROR(OrderStreams(compute_.get(), retire_.get(), events_));
  for (const PeerReadRef& reader : readers) {
    TENSORD_RETURN_IF_ERROR(reader->Order(retire_.get()));
  }
  return absl::OkStatus();
}

absl::Status CudaDevice::OrderTransfers(CudaBuffer& buffer, cudaStream_t stream) {
  const cudaStream_t owner =
      buffer.order() == MemoryOrder::kUpload ? uploads_->stream() : compute_.get();
  return buffer.OrderTransfersOnce(
      [&] { return owner == stream ? absl::OkStatus() : OrderStreams(owner, stream, events_); });
}

absl::Status CudaDevice::OrderAfterUploads(const Buffer& buffer, cudaStream_t stream) {
  TENSORD_BEGIN_CALL_OR_RETURN_LOSS(calls_);
  const DeviceGuard guard(info_.physical_index);
  return uploads_->OrderAfterUploads(buffer.data(), buffer.size_bytes(), stream);
}

absl::Status CudaDevice::OrderAfterAllocation(Buffer& buffer, cudaStream_t stream) {
  TENSORD_BEGIN_CALL_OR_RETURN_LOSS(calls_);
  const DeviceGuard guard(info_.physical_index);
  return OrderTransfers(static_cast<CudaBuffer&>(buffer), stream);
}

absl::Status CudaDevice::Write(Buffer& dst, int64_t offset, const void* src, int64_t bytes) {
  return WriteBy(dst, offset, bytes, [src](int64_t at, int64_t size, void* to) {
    std::memcpy(to, static_cast<const char*>(src) + at, static_cast<size_t>(size));
  });
}

absl::Status CudaDevice::WriteBy(Buffer& dst, int64_t offset, int64_t bytes, Fill fill) {
  if (bytes == 0) return absl::OkStatus();
  TENSORD_BEGIN_CALL_OR_RETURN_LOSS(calls_);
  const DeviceGuard guard(info_.physical_index);
  auto& buffer = static_cast<CudaBuffer&>(dst);
  TENSORD_RETURN_IF_ERROR(OrderTransfers(buffer, uploads_->stream()));
  return buffer.TransferEnded(
      uploads_->Upload(static_cast<char*>(dst.data()) + offset, bytes, fill));
}

absl::Status CudaDevice::WriteFrom(Buffer& dst, int64_t offset, HostMemory& src, int64_t src_offset,
                                   int64_t bytes) {
  if (bytes == 0) return absl::OkStatus();
  TENSORD_BEGIN_CALL_OR_RETURN_LOSS(calls_);
  const DeviceGuard guard(info_.physical_index);
  const HostRegistration::Use use(&HostRegistration::Of(src), info_.physical_index);
  const char* const data = src.data() + src_offset;
  if (!use.registered()) return Write(dst, offset, data, bytes);
  auto& buffer = static_cast<CudaBuffer&>(dst);
  TENSORD_RETURN_IF_ERROR(OrderTransfers(buffer, uploads_->stream()));
  return buffer.TransferEnded(CopyPinned(static_cast<char*>(dst.data()) + offset, data, bytes,
                                         cudaMemcpyHostToDevice, uploads_->stream(), events_));
}

absl::Status CudaDevice::Read(const Buffer& src, int64_t offset, void* dst, int64_t bytes) {
  if (bytes == 0) return absl::OkStatus();
  TENSORD_BEGIN_CALL_OR_RETURN_LOSS(calls_);
  const DeviceGuard guard(info_.physical_index);
  const char* data = static_cast<const char*>(src.data()) + offset;
  TENSORD_RETURN_IF_ERROR(uploads_->OrderAfterUploads(data, bytes, downloads_->stream()));
  return downloads_->Download(dst, data, bytes);
}

absl::Status CudaDevice::ReadInto(const Buffer& src, int64_t offset, HostMemory& dst,
                                  int64_t dst_offset, int64_t bytes) {
  if (bytes == 0) return absl::OkStatus();
  TENSORD_BEGIN_CALL_OR_RETURN_LOSS(calls_);
  const DeviceGuard guard(info_.physical_index);
  const HostRegistration::Use use(&HostRegistration::Of(dst), info_.physical_index);
  char* const to = dst.data() + dst_offset;
  if (!use.registered()) return Read(src, offset, to, bytes);
  const char* data = static_cast<const char*>(src.data()) + offset;
  TENSORD_RETURN_IF_ERROR(uploads_->OrderAfterUploads(data, bytes, downloads_->stream()));
  return CopyPinned(to, data, bytes, cudaMemcpyDeviceToHost, downloads_->stream(), events_);
}

absl::Status CudaDevice::CopyFrom(Buffer& dst, const Buffer& src, int64_t bytes) {
  if (bytes == 0) return absl::OkStatus();
  if (src.device().name().kind == DeviceKind::kCuda) {
    return CopyFromCuda(dst, src, bytes);
  }
  if (!src.device().host_accessible()) {
    return absl::UnimplementedError(
        absl::StrCat(name().ToString(), " can't copy from ", src.device().name().ToString()));
  }
  // Kernels that are launched later wait for the upload, as after any Write().
  return Write(dst, 0, src.data(), bytes);
}

absl::Status CudaDevice::CopyFromCuda(Buffer& dst, const Buffer& src, int64_t bytes) {
  auto& source = static_cast<CudaDevice&>(src.device());
  TENSORD_BEGIN_CALL_OR_RETURN_LOSS(calls_);
  const CallTracker::Call at_source(&source.calls_);
  if (!at_source.admitted()) return *source.loss();
  const DeviceGuard guard(info_.physical_index);
  // All kernels that write `src` have finished or are on this stream. An upload into `src` may
  // still run on its device's upload stream.
  TENSORD_RETURN_IF_ERROR(source.uploads_->OrderAfterUploads(src.data(), bytes, compute_.get()));
  const auto size = static_cast<size_t>(bytes);
  if (source.info_.physical_index == info_.physical_index) {
    TENSORD_CUDA_RETURN_IF_ERROR(
        cudaMemcpyAsync(dst.data(), src.data(), size, cudaMemcpyDeviceToDevice, compute_.get()));
  } else {
    source.pool_->AllowPeer(info_.physical_index);
    TENSORD_CUDA_RETURN_IF_ERROR(cudaMemcpyPeerAsync(dst.data(), info_.physical_index, src.data(),
                                                     source.info_.physical_index, size,
                                                     compute_.get()));
  }
  if (&source == this) return absl::OkStatus();  // the stream that copies also frees the source
  absl::StatusOr<Event> event = RecordOnCompute();
  if (!event.ok()) {
    // There is no event after which the source may be freed, so this thread waits.
    cudaStreamSynchronize(compute_.get());
    return event.status();
  }
  auto read = std::make_shared<PeerRead>(*std::move(event));
  AddPeerRead(read);
  source.AddPeerRead(read);
  static_cast<const CudaBuffer&>(src.owner()).AddReader(std::move(read));
  return absl::OkStatus();
}

void CudaDevice::AddPeerRead(PeerReadRef read) {
  MutexLock lock(&mu_);
  RemoveEnded(&peer_reads_);
  peer_reads_.push_back(std::move(read));
}

}  // namespace tensord::server::cuda
