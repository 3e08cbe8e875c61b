#include "tensord/tests/gpu/gpu.h"

#include <future>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tensord/common/util/status_macros.h"
#include "tensord/server/device/cuda/cuda_device.h"
#include "tensord/server/device/cuda/cudnn_library.h"
#include "tensord/tests/test_launch.h"

namespace tensord::gpu {
namespace {

// Returns an attribute of GPU 0; 0 if the driver doesn't know it.
int AttributeOrZero(cudaDeviceAttr attribute) {
  int value = 0;
  if (cudaDeviceGetAttribute(&value, attribute, 0) == cudaSuccess) return value;
  cudaGetLastError();
  return 0;
}

// Returns the operations per clock of one multiprocessor, from NVIDIA's architecture whitepapers.
// If they are unknown, returns 0.
int Float32FlopsPerClock(int major, int minor) { return major == 8 && minor == 0 ? 128 : 256; }
int TensorFlopsPerClock(int major, int minor) {
  if (major == 8 && minor == 0) return 2048;
  if (major == 9) return 4096;
  if (major == 10) return 8192;
  return 0;
}

std::string CudnnVersion() {
  const auto library = server::cuda::LoadCudnn();
  if (!library.ok()) return "none";
  const size_t version = (*library)->GetVersion();
  return absl::StrCat(version / 10000, ".", version / 100 % 100, ".", version % 100);
}

}  // namespace

double GpuInfo::FlopsPerSecond(DType dtype, bool tf32) const {
  int per_clock = tensor_flops_per_clock;
  if (dtype == DType::kFloat32) per_clock = tf32 ? per_clock / 2 : float32_flops_per_clock;
  return per_clock * multiprocessors * clock_hz;
}

absl::StatusOr<GpuInfo> DescribeGpu() {
  std::string reason;
  if (server::CudaDeviceCount(&reason) == 0) return absl::UnavailableError(reason);
  cudaDeviceProp properties;
  const cudaError_t error = cudaGetDeviceProperties(&properties, 0);
  if (error != cudaSuccess) return absl::UnavailableError(cudaGetErrorString(error));
  GpuInfo info;
  info.model = properties.name;
  info.compute_capability = absl::StrCat(properties.major, ".", properties.minor);
  info.multiprocessors = properties.multiProcessorCount;
  info.memory_bytes = static_cast<int64_t>(properties.totalGlobalMem);
  cudaDriverGetVersion(&info.driver_version);
  info.cudnn = CudnnVersion();
  info.clock_hz = 1e3 * AttributeOrZero(cudaDevAttrClockRate);
  info.bytes_per_second = 2e3 * AttributeOrZero(cudaDevAttrMemoryClockRate) *
                          AttributeOrZero(cudaDevAttrGlobalMemoryBusWidth) / 8;
  info.float32_flops_per_clock = Float32FlopsPerClock(properties.major, properties.minor);
  info.tensor_flops_per_clock = TensorFlopsPerClock(properties.major, properties.minor);
  return info;
}

absl::StatusOr<std::unique_ptr<Gpu>> Gpu::Make(int64_t limit_bytes) {
  TENSORD_ASSIGN_OR_RETURN(auto device,
                           server::MakeCudaDevice({DeviceKind::kCuda, 0}, 0, limit_bytes));
  device->BindThread();
  return std::unique_ptr<Gpu>(new Gpu(std::move(device)));
}

absl::StatusOr<server::BufferRef> Gpu::Upload(const TensorSpec& spec, uint32_t seed) {
  TENSORD_ASSIGN_OR_RETURN(server::BufferRef buffer, device_->Allocate(spec.size_bytes()));
  const std::vector<uint8_t> data = MakeData(spec.dtype, spec.num_elements(), seed);
  TENSORD_RETURN_IF_ERROR(device_->Write(*buffer, 0, data.data(), spec.size_bytes()));
  return buffer;
}

absl::Status Gpu::Wait() {
  std::promise<absl::Status> done;
  device_->Fence([&](absl::Status status) { done.set_value(std::move(status)); });
  return done.get_future().get();
}

absl::StatusOr<Checksum> Gpu::ChecksumOf(const TensorSpec& spec, const server::Buffer& buffer) {
  std::vector<uint8_t> bytes(static_cast<size_t>(spec.size_bytes()));
  TENSORD_RETURN_IF_ERROR(device_->Read(buffer, 0, bytes.data(), spec.size_bytes()));
  return gpu::ChecksumOf(spec.dtype, bytes);
}

absl::StatusOr<std::unique_ptr<Op>> Op::Make(Gpu* gpu, const std::string& name,
                                             std::vector<TensorSpec> inputs,
                                             const Attributes& attrs) {
  std::unique_ptr<Op> op(new Op);
  op->gpu_ = gpu;
  op->specs_ = std::move(inputs);
  TENSORD_ASSIGN_OR_RETURN(op->plan_, PlanOp(name, op->specs_, attrs));
  for (size_t i = 0; i < op->specs_.size(); ++i) {
    if (op->plan_.input_dtypes[i] != op->specs_[i].dtype) {
      return absl::InternalError(absl::StrCat(name, ": input ", i, " would be cast first"));
    }
    TENSORD_ASSIGN_OR_RETURN(server::BufferRef buffer,
                             gpu->Upload(op->specs_[i], static_cast<uint32_t>(i + 1)));
    op->inputs_.push_back(buffer.get());
    op->buffers_.push_back(std::move(buffer));
  }
  TENSORD_ASSIGN_OR_RETURN(op->kernel_, gpu->device().Prepare({op->plan_.schema, &op->plan_.attrs,
                                                               op->specs_, op->plan_.outputs}));
  TENSORD_ASSIGN_OR_RETURN(op->output_, gpu->device().Allocate(op->plan_.output().size_bytes()));
  return op;
}

absl::Status Op::Run(int count) {
  const server::TestLaunch launch(gpu_->device());
  for (int i = 0; i < count; ++i) {
    TENSORD_RETURN_IF_ERROR(kernel_->Launch(launch.context(), inputs_, output_.get()));
  }
  return gpu_->Wait();
}

absl::Status Op::RunIntoNewMemory(int count) {
  const server::TestLaunch launch(gpu_->device());
  for (int i = 0; i < count; ++i) {
    TENSORD_ASSIGN_OR_RETURN(server::BufferRef output,
                             gpu_->device().Allocate(plan_.output().size_bytes()));
    TENSORD_RETURN_IF_ERROR(kernel_->Launch(launch.context(), inputs_, output.get()));
    output_ = std::move(output);
  }
  return gpu_->Wait();
}

}  // namespace tensord::gpu
