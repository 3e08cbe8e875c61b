// Finds the GPUs, and makes and resets devices on them.
#include <stdlib.h>

#include "absl/strings/str_cat.h"
#include "tensord/common/util/status_macros.h"
#include "tensord/server/device/cuda/cuda_device.h"
#include "tensord/server/device/cuda/cuda_device_internal.h"
#include "tensord/server/device/cuda/cuda_status.h"
#include "tensord/server/device/cuda/host_registration.h"
#include "tensord/server/device/cuda/kernels/probe.h"
#include "tensord/server/device/cuda/nccl_communicator.h"
#include "tensord/server/log.h"

namespace tensord::server {
namespace cuda {
namespace {

std::string Version(int version) { return absl::StrCat(version / 1000, ".", version % 1000 / 10); }

std::string NoGpuReason(cudaError_t error) {
  if (error == cudaErrorInsufficientDriver) {
    int driver = 0;
    if (cudaDriverGetVersion(&driver) == cudaSuccess && driver > 0) {
      return absl::StrCat("driver too old: it supports CUDA ", Version(driver),
                          ", and this program was built for CUDA ", Version(CUDART_VERSION));
    }
    return "no NVIDIA driver found";
  }
  if (error == cudaSuccess || error == cudaErrorNoDevice) {
    return "no GPU: no CUDA-capable device is detected";
  }
  return absl::StrCat("driver failed: ", cudaGetErrorName(error), ": ", cudaGetErrorString(error));
}

// "GPU-01234567-89ab-…", as nvidia-smi prints it.
std::string UuidText(const cudaUUID_t& uuid) {
  std::string text = "GPU";
  for (int i = 0; i < 16; ++i) {
    if (i == 0 || i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    absl::StrAppend(&text, absl::Hex(static_cast<unsigned char>(uuid.bytes[i]), absl::kZeroPad2));
  }
  return text;
}

absl::Status CheckIndex(int physical_index) {
  std::string reason;
  const int count = CudaDeviceCount(&reason);
  if (count == 0) return absl::UnavailableError(absl::StrCat("CUDA can't be used: ", reason));
  if (physical_index >= 0 && physical_index < count) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("there is no GPU ", physical_index, ": this machine has ", count,
                   count == 1 ? ", number 0" : absl::StrCat(", 0 to ", count - 1)));
}

absl::Status CheckKernels(const DeviceInfo& info) {
  const cudaError_t error = ProbeKernels();
  if (error == cudaSuccess) return absl::OkStatus();
  const absl::Status status = CudaStatus(error, "loading kernels");
  const char* advice = "";
  if (error == cudaErrorDevicesUnavailable) {
    advice = "; if this process has lost the GPU, only a new process can use it";
  } else if (error == cudaErrorNoKernelImageForDevice || error == cudaErrorInvalidPtx ||
             error == cudaErrorUnsupportedPtxVersion || error == cudaErrorInvalidDeviceFunction) {
    advice = "; build with its architecture in CMAKE_CUDA_ARCHITECTURES";
  }
  return absl::Status(status.code(), absl::StrCat("GPU ", info.physical_index, " (", info.model,
                                                  ", compute capability ", info.compute_capability,
                                                  ") can't run this program's kernels: ",
                                                  status.message(), advice));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Device>> CudaDevice::Create(DeviceName name, int physical_index,
                                                           int64_t limit_bytes,
                                                           SmallBlocks small_blocks) {
  TENSORD_RETURN_IF_ERROR(CheckIndex(physical_index));
  const DeviceGuard guard(physical_index);
  cudaDeviceProp properties;
  TENSORD_CUDA_RETURN_IF_ERROR(cudaGetDeviceProperties(&properties, physical_index));
  DeviceInfo info;
  info.name = name;
  info.physical_index = physical_index;
  info.model = properties.name;
  info.uuid = UuidText(properties.uuid);
  info.compute_capability = absl::StrCat(properties.major, ".", properties.minor);
  TENSORD_RETURN_IF_ERROR(CheckKernels(info));
  std::unique_ptr<CudaDevice> device(new CudaDevice(
      std::move(info), static_cast<int64_t>(properties.totalGlobalMem), limit_bytes));
  TENSORD_RETURN_IF_ERROR(device->Start(limit_bytes, small_blocks, properties.multiProcessorCount));
  const absl::Status missing = Blas::CheckLibrary();
  if (!missing.ok()) {
    LogLine(absl::StrCat("WARNING: ", name.ToString(), ": ", missing.message()));
  }
  return device;
}

}  // namespace cuda

Backend CudaBackend() {
  Backend backend;
  backend.kind = DeviceKind::kCuda;
  backend.count = CudaDeviceCount;
  backend.physical_name = [](int index) { return absl::StrCat("GPU ", index); };
  backend.total_memory = CudaTotalMemory;
  // Kernels, graphs, NCCL and the workspace of matrix products use this memory. No limit includes
  // it.
  backend.reserved_memory = [](int64_t total) { return std::min(total / 16, int64_t{2} << 30); };
  backend.make = [](const DeviceOptions& options) {
    return MakeCudaDevice(options.name, options.physical_index, options.limit_bytes);
  };
  backend.reset = ResetCudaDevice;
  backend.make_communicator = MakeNcclCommunicator;
  return backend;
}

int CudaDeviceCount(std::string* reason) {
  // Loads all kernels when a context is created. CUDA's default is lazy loading: it loads a kernel
  // at the first launch, which may wait for all work on the GPU.
  static const int eager = setenv("CUDA_MODULE_LOADING", "EAGER", /*overwrite=*/0);
  static_cast<void>(eager);
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error == cudaSuccess && count > 0) return count;
  cudaGetLastError();
  if (reason != nullptr) *reason = cuda::NoGpuReason(error);
  return 0;
}

absl::StatusOr<int64_t> CudaTotalMemory(int physical_index) {
  TENSORD_RETURN_IF_ERROR(cuda::CheckIndex(physical_index));
  cudaDeviceProp properties;
  TENSORD_CUDA_RETURN_IF_ERROR(cudaGetDeviceProperties(&properties, physical_index));
  return static_cast<int64_t>(properties.totalGlobalMem);
}

absl::Status OrderAfterCudaUploads(const Buffer& buffer, CUstream_st* stream) {
  return static_cast<cuda::CudaDevice&>(buffer.device()).OrderAfterUploads(buffer, stream);
}

absl::Status OrderAfterCudaAllocation(Buffer& buffer, CUstream_st* stream) {
  return static_cast<cuda::CudaDevice&>(buffer.device()).OrderAfterAllocation(buffer, stream);
}

absl::Status CallOnCudaDevice(const Buffer& buffer, absl::FunctionRef<absl::Status()> call) {
  return static_cast<cuda::CudaDevice&>(buffer.device()).Call(call);
}

absl::Status ResetCudaDevice(int physical_index) {
  // The first two calls may return the fault that led to this reset. Their errors are ignored. Only
  // the calls after them show whether the GPU can be used.
  const auto reset = [&]() -> absl::Status {
    cuda::MakeCurrent(physical_index);
    cudaDeviceReset();
    cudaGetLastError();
    cuda::InvalidateCurrentGpus();
    TENSORD_RETURN_IF_ERROR(cuda::CudaStatus(cuda::MakeCurrent(physical_index), "cudaSetDevice"));
    return cuda::CudaStatus(cudaFree(nullptr), "cudaFree");  // makes the context
  };
  TENSORD_RETURN_IF_ERROR(cuda::HostRegistration::Reset(physical_index, reset));
  cuda::FreeAbandonedPools(physical_index);
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Device>> MakeCudaDevice(DeviceName name, int physical_index,
                                                       int64_t limit_bytes,
                                                       SmallBlocks small_blocks) {
  return cuda::CudaDevice::Create(name, physical_index, limit_bytes, small_blocks);
}

}  // namespace tensord::server
