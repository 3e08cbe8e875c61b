#include "tensord/server/device/cuda/cuda_device.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tensord/common/status_macros.h"
#include "tensord/server/device/cuda/cuda_device_internal.h"
#include "tensord/server/device/cuda/cuda_status.h"
#include "tensord/server/device/cuda/graph_scratch.h"

// From here to the end of the block Abandon() waits.
#define TENSORD_ENTER_OR_RETURN_LOSS(gate)    \
  const CallGate::Entry tensord_entry(&gate); \
  if (!tensord_entry.entered()) return *loss()

namespace tensord::server::cuda {

CudaDevice::CudaDevice(DeviceInfo info, int64_t total_bytes, int64_t limit_bytes)
    : info_(std::move(info)), accountant_(info_.name, total_bytes, limit_bytes) {}

absl::Status CudaDevice::Start(int64_t limit_bytes, int multiprocessors) {
  TENSORD_ASSIGN_OR_RETURN(compute_, MakeStream());
  TENSORD_ASSIGN_OR_RETURN(pool_,
                           MemoryPool::Create(info_.physical_index, limit_bytes, compute_.get()));
  TENSORD_ASSIGN_OR_RETURN(capture_, MakeStream());
  TENSORD_ASSIGN_OR_RETURN(retire_, MakeStream());
  TENSORD_ASSIGN_OR_RETURN(uploads_, UploadRing::Create());
  TENSORD_ASSIGN_OR_RETURN(downloads_, DownloadRing::Create());
  TENSORD_ASSIGN_OR_RETURN(blas_, Blas::Create(compute_.get()));
  int major = 0, minor = 0;
  TENSORD_CUDA_RETURN_IF_ERROR(
      cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, info_.physical_index));
  TENSORD_CUDA_RETURN_IF_ERROR(
      cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, info_.physical_index));
  fused_kernels_ = std::make_unique<FusedKernels>(major, minor, compute_.get());
  context_ = {compute_.get(), multiprocessors, pool_.get(), blas_.get(), nullptr};
  fences_ = std::make_unique<FenceThread>(info_.physical_index, &events_);
  return absl::OkStatus();
}

CudaDevice::~CudaDevice() {
  const CallGate::Entry entry(&gate_);
  if (!entry.entered()) return;  // Abandon() has left nothing
  const DeviceGuard guard(info_.physical_index);
  fences_.reset();
  for (const Stream* stream : {&compute_, &retire_}) {
    if (stream->get() != nullptr) cudaStreamSynchronize(stream->get());
  }
  fused_kernels_.reset();
  blas_.reset();
  downloads_.reset();
  uploads_.reset();
  pool_.reset();
}

void CudaDevice::BindThread() { MakeCurrent(info_.physical_index); }

absl::StatusOr<void*> CudaDevice::AllocateMemory(int64_t size_bytes) {
  TENSORD_ENTER_OR_RETURN_LOSS(gate_);
  const DeviceGuard guard(info_.physical_index);
  absl::StatusOr<void*> data = pool_->Allocate(size_bytes, compute_.get());
  if (data.ok()) {
    MutexLock lock(&mu_);
    live_.insert(*data);
  }
  if (!absl::IsResourceExhausted(data.status())) return data;
  size_t free_bytes = 0, total_bytes = 0;
  TENSORD_CUDA_RETURN_IF_ERROR(cudaMemGetInfo(&free_bytes, &total_bytes));
  return accountant_.PhysicallyExhausted(size_bytes, static_cast<int64_t>(free_bytes));
}

absl::StatusOr<BufferRef> CudaDevice::Allocate(int64_t size_bytes) {
  TENSORD_RETURN_IF_ERROR(accountant_.Reserve(size_bytes));
  void* data = nullptr;
  if (size_bytes > 0) {
    absl::StatusOr<void*> memory = AllocateMemory(size_bytes);
    if (!memory.ok()) {
      accountant_.Release(size_bytes);
      return memory.status();
    }
    data = *memory;
  }
  return BufferRef(std::make_shared<CudaBuffer>(this, data, size_bytes));
}

void CudaDevice::Release(CudaBuffer& buffer) {
  const CallGate::Entry entry(&gate_);
  if (buffer.data() != nullptr && entry.entered()) {
    const DeviceGuard guard(info_.physical_index);
    // Other threads may get the memory as soon as it is free.
    {
      MutexLock lock(&mu_);
      live_.erase(buffer.data());
    }
    FreeMemory(buffer);
  }
  accountant_.Release(buffer.size_bytes());
}

void CudaDevice::FreeMemory(CudaBuffer& buffer) {
  // Uploads that nobody waited for: of a tensor that was given up half way. If a stream can't be
  // made to wait, the host waits.
  if (!uploads_->OrderAfterUploads(buffer.data(), buffer.size_bytes(), compute_.get()).ok()) {
    cudaStreamSynchronize(uploads_->stream());
  }
  const std::vector<PeerReadRef> readers = buffer.TakeReaders();
  cudaStream_t stream = compute_.get();
  if (!readers.empty() && OrderRetireAfter(readers).ok()) {
    stream = retire_.get();
  } else {
    for (const PeerReadRef& reader : readers) reader->Await();
  }
  pool_->Free(buffer.data(), buffer.size_bytes(), stream);
}

absl::Status CudaDevice::OrderRetireAfter(const std::vector<PeerReadRef>& readers) {
  TENSORD_RETURN_IF_ERROR(OrderStreams(compute_.get(), retire_.get(), events_));
  for (const PeerReadRef& reader : readers) {
    TENSORD_RETURN_IF_ERROR(reader->Order(retire_.get()));
  }
  return absl::OkStatus();
}

absl::Status CudaDevice::Launch(const KernelCall& call) {
  const Kernel* kernel = FindKernel(call.schema->name);
  if (kernel == nullptr) {
    return absl::InternalError(
        absl::StrCat("the CUDA backend has no kernel for ", call.schema->name));
  }
  TENSORD_ENTER_OR_RETURN_LOSS(gate_);
  const DeviceGuard guard(info_.physical_index);
  if (context_.graph_scratch != nullptr) context_.graph_scratch->BeginOp();
  for (const Operand& input : call.inputs) {
    TENSORD_RETURN_IF_ERROR(OrderInput(input.data, input.spec->size_bytes()));
  }
  return (*kernel)(call, context_);
}

absl::Status CudaDevice::OrderInput(const void* data, int64_t bytes) {
  if (data == nullptr || context_.graph_scratch != nullptr) return absl::OkStatus();
  return uploads_->OrderAfterUploads(data, bytes, compute_.get());
}

absl::Status CudaDevice::Write(Buffer& dst, int64_t offset, const void* src, int64_t bytes) {
  if (bytes == 0) return absl::OkStatus();
  TENSORD_ENTER_OR_RETURN_LOSS(gate_);
  const DeviceGuard guard(info_.physical_index);
  TENSORD_RETURN_IF_ERROR(static_cast<CudaBuffer&>(dst).OrderUploadsOnce(
      [&] { return OrderStreams(compute_.get(), uploads_->stream(), events_); }));
  return uploads_->Upload(static_cast<char*>(dst.data()) + offset, src, bytes);
}

absl::Status CudaDevice::Read(const Buffer& src, int64_t offset, void* dst, int64_t bytes) {
  if (bytes == 0) return absl::OkStatus();
  TENSORD_ENTER_OR_RETURN_LOSS(gate_);
  const DeviceGuard guard(info_.physical_index);
  const char* data = static_cast<const char*>(src.data()) + offset;
  TENSORD_RETURN_IF_ERROR(uploads_->OrderAfterUploads(data, bytes, downloads_->stream()));
  return downloads_->Download(dst, data, bytes);
}

absl::Status CudaDevice::CopyFrom(Buffer& dst, const Buffer& src, int64_t bytes) {
  if (bytes == 0) return absl::OkStatus();
  if (src.device().name().kind == DeviceKind::kCuda) {
    return CopyFromCuda(dst, static_cast<const CudaBuffer&>(src), bytes);
  }
  if (!src.device().host_accessible()) {
    return absl::UnimplementedError(
        absl::StrCat(name().ToString(), " can't copy from ", src.device().name().ToString()));
  }
  // Kernels launched after it wait for the upload, as after any Write().
  return Write(dst, 0, src.data(), bytes);
}

absl::Status CudaDevice::CopyFromCuda(Buffer& dst, const CudaBuffer& src, int64_t bytes) {
  auto& source = static_cast<CudaDevice&>(src.device());
  TENSORD_ENTER_OR_RETURN_LOSS(gate_);
  const CallGate::Entry at_source(&source.gate_);
  if (!at_source.entered()) return *source.loss();
  const DeviceGuard guard(info_.physical_index);
  // Kernels have left `src` complete; an upload into it may be under way on its device's stream.
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
  if (&source == this) return absl::OkStatus();  // freed on the very stream that copies
  absl::StatusOr<Event> event = RecordOnCompute();
  if (!event.ok()) {
    // Without the event nothing would tell when the source may be freed.
    cudaStreamSynchronize(compute_.get());
    return event.status();
  }
  auto read = std::make_shared<PeerRead>(*std::move(event));
  AddPeerRead(read);
  source.AddPeerRead(read);
  src.AddReader(std::move(read));
  return absl::OkStatus();
}

void CudaDevice::AddPeerRead(PeerReadRef read) {
  MutexLock lock(&mu_);
  DropOver(&peer_reads_);
  peer_reads_.push_back(std::move(read));
}

absl::StatusOr<Event> CudaDevice::RecordOnCompute() {
  TENSORD_ASSIGN_OR_RETURN(Event event, events_.Acquire());
  TENSORD_CUDA_RETURN_IF_ERROR(cudaEventRecord(event.get(), compute_.get()));
  return event;
}

absl::Status CudaDevice::AwaitMemory(const Buffer& buffer) {
  if (buffer.size_bytes() == 0) return absl::OkStatus();
  TENSORD_ENTER_OR_RETURN_LOSS(gate_);
  const DeviceGuard guard(info_.physical_index);
  TENSORD_RETURN_IF_ERROR(
      uploads_->OrderAfterUploads(buffer.data(), buffer.size_bytes(), compute_.get()));
  TENSORD_ASSIGN_OR_RETURN(Event event, RecordOnCompute());
  const cudaError_t error = cudaEventSynchronize(event.get());
  events_.Return(std::move(event));
  return CudaStatus(error, "cudaEventSynchronize");
}

absl::Status CudaDevice::Call(absl::FunctionRef<absl::Status()> call) {
  TENSORD_ENTER_OR_RETURN_LOSS(gate_);
  const DeviceGuard guard(info_.physical_index);
  return call();
}

void CudaDevice::Fence(std::function<void(absl::Status)> done) {
  const CallGate::Entry entry(&gate_);
  if (!entry.entered()) {
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
  TENSORD_ENTER_OR_RETURN_LOSS(gate_);
  const DeviceGuard guard(info_.physical_index);
  // The stream is a good one: whatever it gives but "not ready" is the context's.
  const cudaError_t state = cudaStreamQuery(compute_.get());
  if (state != cudaSuccess && state != cudaErrorNotReady) {
    return absl::DataLossError(CudaStatus(state, "cudaStreamQuery").message());
  }
  cudaGetLastError();  // "not ready" is no error, but the runtime remembers it as one
  return absl::OkStatus();
}

void CudaDevice::Abandon() {
  gate_.Close();
  const DeviceGuard guard(info_.physical_index);
  fences_.reset();
  std::vector<PeerReadRef> reads;
  {
    MutexLock lock(&mu_);
    reads.swap(peer_reads_);
    std::vector<void*> memory = pool_->Abandon();
    memory.insert(memory.end(), live_.begin(), live_.end());
    AddOrphans(info_.physical_index, {std::move(pool_), std::move(memory)});
    live_.clear();
  }
  // Reads by others are waited for, as the memory goes; this device's own run no more.
  for (const PeerReadRef& read : reads) read->Await();
  for (const PeerReadRef& read : reads) read->Forget();
  fused_kernels_.reset();
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
