#include "tensord/server/device/cuda/cuda_device.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tensord/common/util/status_macros.h"
#include "tensord/server/device/cuda/cuda_device_internal.h"
#include "tensord/server/device/cuda/cuda_status.h"
#include "tensord/server/device/cuda/graph_scratch.h"
#include "tensord/server/device/cuda/kernels/value_check.h"
#include "tensord/server/device/cuda/nvml.h"

namespace tensord::server::cuda {

CudaDevice::CudaDevice(DeviceInfo info, int64_t total_bytes, int64_t limit_bytes)
    : info_(std::move(info)), memory_limit_(info_.name, total_bytes, limit_bytes) {}

absl::Status CudaDevice::Start(int64_t limit_bytes, SmallBlocks small_blocks, int multiprocessors) {
  TENSORD_ASSIGN_OR_RETURN(compute_, MakeStream());
  TENSORD_ASSIGN_OR_RETURN(
      pool_, MemoryPool::Create(info_.physical_index, limit_bytes, compute_.get(), small_blocks));
  TENSORD_ASSIGN_OR_RETURN(capture_, MakeStream());
  TENSORD_ASSIGN_OR_RETURN(retire_, MakeStream());
  TENSORD_ASSIGN_OR_RETURN(uploads_, UploadRing::Create());
  TENSORD_ASSIGN_OR_RETURN(downloads_, DownloadRing::Create());
  TENSORD_ASSIGN_OR_RETURN(blas_, Blas::Create(compute_.get()));
  dnn_ = std::make_unique<Dnn>(compute_.get());
  int major = 0, minor = 0;
  TENSORD_CUDA_RETURN_IF_ERROR(
      cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, info_.physical_index));
  TENSORD_CUDA_RETURN_IF_ERROR(
      cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, info_.physical_index));
  fused_kernels_ = std::make_unique<FusedKernels>(major, minor, compute_.get());
  context_ = {compute_.get(), multiprocessors, pool_.get(), blas_.get(), dnn_.get(), nullptr};
  fences_ = std::make_unique<FenceThread>(info_.physical_index, &events_);
  return absl::OkStatus();
}

CudaDevice::~CudaDevice() {
  const CallTracker::Call call(&calls_);
  if (!call.admitted()) return;  // Abandon() has destroyed everything
  const DeviceGuard guard(info_.physical_index);
  fences_.reset();
  for (const Stream* stream : {&compute_, &retire_}) {
    if (stream->get() != nullptr) cudaStreamSynchronize(stream->get());
  }
  checks_->Abandon();
  fused_kernels_.reset();
  dnn_.reset();
  blas_.reset();
  downloads_.reset();
  uploads_.reset();
  pool_.reset();
}

HardwareUse CudaDevice::QueryHardwareUse() const { return ProcessNvml().Query(info_.uuid); }

void CudaDevice::BindThread() { MakeCurrent(info_.physical_index); }

absl::StatusOr<void*> CudaDevice::AllocateMemory(int64_t size_bytes, MemoryOrder order) {
  TENSORD_BEGIN_CALL_OR_RETURN_LOSS(calls_);
  const DeviceGuard guard(info_.physical_index);
  absl::StatusOr<void*> data = pool_->Allocate(
      size_bytes, order == MemoryOrder::kUpload ? uploads_->stream() : compute_.get());
  if (data.ok()) {
    MutexLock lock(&mu_);
    live_.insert(*data);
  }
  if (!absl::IsResourceExhausted(data.status())) return data;
  size_t free_bytes = 0, total_bytes = 0;
  TENSORD_CUDA_RETURN_IF_ERROR(cudaMemGetInfo(&free_bytes, &total_bytes));
  return memory_limit_.PhysicallyExhausted(size_bytes, static_cast<int64_t>(free_bytes));
}

absl::StatusOr<BufferRef> CudaDevice::Allocate(int64_t size_bytes) {
  return AllocateIn(MemoryOrder::kCompute, size_bytes);
}

absl::StatusOr<BufferRef> CudaDevice::AllocateForTransfer(int64_t size_bytes) {
  return AllocateIn(MemoryOrder::kUpload, size_bytes);
}

absl::StatusOr<BufferRef> CudaDevice::AllocateIn(MemoryOrder order, int64_t size_bytes) {
  TENSORD_RETURN_IF_ERROR(memory_limit_.Reserve(size_bytes));
  void* data = nullptr;
  if (size_bytes > 0) {
    absl::StatusOr<void*> memory = AllocateMemory(size_bytes, order);
    if (!memory.ok()) {
      memory_limit_.Release(size_bytes);
      return memory.status();
    }
    data = *memory;
  }
  return BufferRef(new CudaBuffer(this, order, data, size_bytes));
}

void CudaDevice::Release(CudaBuffer& buffer) {
  const CallTracker::Call call(&calls_);
  if (buffer.data() != nullptr && call.admitted()) {
    const DeviceGuard guard(info_.physical_index);
    // Removes the pointer before the free, because another thread may allocate the same memory
    // after it.
    {
      MutexLock lock(&mu_);
      live_.erase(buffer.data());
    }
    FreeMemory(buffer);
  }
  memory_limit_.Release(buffer.size_bytes());
}

void CudaDevice::FreeMemory(CudaBuffer& buffer) {
  // If the tensor was dropped before its upload was complete, copies to the buffer may still run.
  absl::Status ordered =
      uploads_->OrderAfterUploads(buffer.data(), buffer.size_bytes(), compute_.get());
  // If the buffer had no transfers, only this orders its allocation before the free.
  if (ordered.ok() && buffer.order() == MemoryOrder::kUpload && !buffer.has_transfers()) {
    ordered = OrderStreams(uploads_->stream(), compute_.get(), events_);
  }
  // If the compute stream can't be ordered after the upload stream, this thread waits instead.
  if (!ordered.ok()) cudaStreamSynchronize(uploads_->stream());
  const std::vector<PeerReadRef> readers = buffer.TakeReaders();
  cudaStream_t stream = compute_.get();
  if (!readers.empty() && OrderRetireAfter(readers).ok()) {
    stream = retire_.get();
  } else {
    for (const PeerReadRef& reader : readers) reader->Await();
  }
  // Memory for transfers isn't reusable: AllocateForTransfer() takes no memory from the lists of
  // small blocks, so transfers would only fill them.
  pool_->Free(buffer.data(), buffer.size_bytes(), stream,
              /*reusable=*/buffer.order() == MemoryOrder::kCompute);
}

absl::Status CudaDevice::Launch(const KernelCall& call) {
  const Kernel* kernel = FindKernel(call.schema->name);
  if (kernel == nullptr) {
    return absl::InternalError(
        absl::StrCat("the CUDA backend has no kernel for ", call.schema->name));
  }
  TENSORD_BEGIN_CALL_OR_RETURN_LOSS(calls_);
  const DeviceGuard guard(info_.physical_index);
  if (context_.graph_scratch != nullptr) context_.graph_scratch->BeginOp();
  for (const Operand& input : call.inputs) {
    TENSORD_RETURN_IF_ERROR(OrderInput(input.data, input.spec->size_bytes()));
  }
  context_.call = &call;
  absl::Status status = (*kernel)(call, context_);
  context_.call = nullptr;
  return status;
}

absl::Status CudaDevice::OrderInput(const void* data, int64_t bytes) {
  if (data == nullptr || context_.graph_scratch != nullptr) return absl::OkStatus();
  return uploads_->OrderAfterUploads(data, bytes, compute_.get());
}

absl::StatusOr<std::unique_ptr<CheckMemory>> CudaDevice::MakeCheckMemory() {
  TENSORD_BEGIN_CALL_OR_RETURN_LOSS(calls_);
  const DeviceGuard guard(info_.physical_index);
  return checks_->Make(compute_.get());
}

absl::Status CudaDevice::CollectChecks(Buffer& cells, int count, const CheckCell& to) {
  TENSORD_BEGIN_CALL_OR_RETURN_LOSS(calls_);
  const DeviceGuard guard(info_.physical_index);
  TENSORD_CUDA_RETURN_IF_ERROR(
      LaunchCollectChecks(static_cast<GraphCheckCell*>(cells.data()), count, to, compute_.get()));
  return absl::OkStatus();
}

absl::StatusOr<Event> CudaDevice::RecordOnCompute() {
  TENSORD_ASSIGN_OR_RETURN(Event event, events_.Acquire());
  TENSORD_CUDA_RETURN_IF_ERROR(cudaEventRecord(event.get(), compute_.get()));
  return event;
}

absl::Status CudaDevice::Call(absl::FunctionRef<absl::Status()> call) {
  TENSORD_BEGIN_CALL_OR_RETURN_LOSS(calls_);
  const DeviceGuard guard(info_.physical_index);
  return call();
}

void CudaDevice::Fence(std::function<void(absl::Status)> done) {
  const CallTracker::Call call(&calls_);
  if (!call.admitted()) {
    done(*loss());
    return;
  }
  const DeviceGuard guard(info_.physical_index);
  absl::StatusOr<Event> event = RecordOnCompute();
  if (event.ok()) {
    fences_->Add(*std::move(event), std::move(done));
  } else {
    done(event.status());
  }
}

absl::Status CudaDevice::Check() {
  TENSORD_BEGIN_CALL_OR_RETURN_LOSS(calls_);
  const DeviceGuard guard(info_.physical_index);
  // The stream is valid, so any error except "not ready" is an error of the context.
  const cudaError_t state = cudaStreamQuery(compute_.get());
  if (state != cudaSuccess && state != cudaErrorNotReady) {
    return absl::DataLossError(CudaStatus(state, "cudaStreamQuery").message());
  }
  cudaGetLastError();  // clears "not ready", which the runtime reports as an error
  return absl::OkStatus();
}

void CudaDevice::Abandon() {
  calls_.Close();
  const DeviceGuard guard(info_.physical_index);
  fences_.reset();
  std::vector<PeerReadRef> reads;
  {
    MutexLock lock(&mu_);
    reads.swap(peer_reads_);
    std::vector<void*> memory = pool_->Abandon();
    memory.insert(memory.end(), live_.begin(), live_.end());
    AddAbandonedPool(info_.physical_index, {std::move(pool_), std::move(memory)});
    live_.clear();
  }
  // Waits until other devices have copied from this device's memory, which is freed later. Copies
  // to this device don't run after the loss.
  for (const PeerReadRef& read : reads) read->Await();
  for (const PeerReadRef& read : reads) read->DestroyEvent();
  checks_->Abandon();
  fused_kernels_.reset();
  dnn_.reset();
  blas_.reset();
  downloads_.reset();
  uploads_.reset();
  events_.Clear();
  compute_ = Stream();
  capture_ = Stream();
  retire_ = Stream();
  cudaGetLastError();
}

}  // namespace tensord::server::cuda
