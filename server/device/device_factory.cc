#include "tensord/server/device/device_factory.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tensord/common/status_macros.h"
#include "tensord/server/device/cpu/cpu_device.h"
#include "tensord/server/device/fault/faulty_device.h"
#include "tensord/server/device/restartable_device.h"
#ifdef TENSORD_HAVE_CUDA
#include "tensord/server/device/cuda/cuda_device.h"
#endif

namespace tensord::server {
namespace {

#ifndef TENSORD_HAVE_CUDA
constexpr absl::string_view kWithoutCuda = "built without CUDA";

int CudaDeviceCount(std::string* reason) {
  *reason = std::string(kWithoutCuda);
  return 0;
}

absl::StatusOr<int64_t> CudaTotalMemory(int /*physical_index*/) {
  return absl::UnavailableError(kWithoutCuda);
}

absl::StatusOr<std::unique_ptr<Device>> MakeCudaDevice(DeviceName /*name*/, int /*physical_index*/,
                                                       int64_t /*limit_bytes*/) {
  return absl::UnavailableError(kWithoutCuda);
}

absl::Status ResetCudaDevice(int /*physical_index*/) {
  return absl::UnavailableError(kWithoutCuda);
}
#endif

std::vector<DeviceRequest> Everything() {
  std::string reason;
  const int gpus = CudaDeviceCount(&reason);
  std::vector<DeviceRequest> requests = {{DeviceKind::kCpu, 0, 0}};
  for (int i = 0; i < gpus; ++i) requests.push_back({DeviceKind::kCuda, i, 0});
  return requests;
}

bool SamePhysical(const DeviceRequest& a, const DeviceRequest& b) {
  return a.kind == b.kind && a.physical_index == b.physical_index;
}

absl::Status CheckCuda(const std::vector<DeviceRequest>& requests) {
  for (const DeviceRequest& request : requests) {
    if (request.kind != DeviceKind::kCuda) continue;
    std::string reason;
    const int gpus = CudaDeviceCount(&reason);
    const std::string name = absl::StrCat("cuda:", request.physical_index);
    if (gpus == 0) {
      return absl::UnavailableError(
          absl::StrCat(name, " was asked for and can't be had: ", reason));
    }
    if (request.physical_index >= gpus) {
      return absl::UnavailableError(absl::StrCat(name, " was asked for and this host has ", gpus,
                                                 gpus == 1 ? " GPU" : " GPUs"));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<int64_t> TotalMemory(const DeviceRequest& request) {
  if (request.kind == DeviceKind::kCuda) return CudaTotalMemory(request.physical_index);
  return CpuTotalMemory();
}

// Returns the bytes of a physical device that its logical devices without a limit share. On a GPU
// this leaves memory for kernels, graphs, NCCL and the workspace of matrix products, which no limit
// includes.
int64_t DefaultTotal(const DeviceRequest& request, int64_t total_bytes) {
  constexpr int64_t kMaxReservedBytes = int64_t{2} << 30;
  if (request.kind != DeviceKind::kCuda) return total_bytes;
  return total_bytes - std::min(total_bytes / 16, kMaxReservedBytes);
}

// A request's own limit, or its share of the physical device's memory.
absl::StatusOr<int64_t> LimitOf(const DeviceRequest& request,
                                const std::vector<DeviceRequest>& requests) {
  TENSORD_ASSIGN_OR_RETURN(const int64_t total, TotalMemory(request));
  if (request.limit_bytes > total) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a device's limit of ", request.limit_bytes, " bytes is more than there is: the ",
        request.kind == DeviceKind::kCuda ? absl::StrCat("GPU ", request.physical_index, " has ")
                                          : "machine, or its control group, has ",
        total, " bytes; lower the limit, or omit it to use the default"));
  }
  if (request.limit_bytes > 0) return request.limit_bytes;
  const auto sharing =
      std::count_if(requests.begin(), requests.end(), [&](const DeviceRequest& other) {
        return SamePhysical(other, request) && other.limit_bytes == 0;
      });
  return std::max<int64_t>(1, DefaultTotal(request, total) / sharing);
}

// The threads of the `index`th of `devices` CPU devices: the first ones get what is left over.
int ThreadsOf(int index, int devices, int cpu_threads) {
  const int all = cpu_threads > 0 ? cpu_threads : CpuThreads();
  return std::max(1, all / devices + (index < all % devices ? 1 : 0));
}

absl::StatusOr<std::unique_ptr<Device>> MakeCuda(DeviceName name, int physical_index,
                                                 int64_t limit_bytes) {
  return RestartableDevice::Create(
      {[=] { return MakeCudaDevice(name, physical_index, limit_bytes); },
       absl::StrCat("GPU ", physical_index), [=] { return ResetCudaDevice(physical_index); }});
}

absl::StatusOr<std::unique_ptr<Device>> MakeFaulty(DeviceName name, int64_t limit_bytes,
                                                   int threads, FaultPlans* faults) {
  if (faults == nullptr) {
    return absl::FailedPreconditionError("a faulty device needs a socket to steer it by");
  }
  FaultPlan* const plan = &faults->Add(name);
  return RestartableDevice::Create({[=]() -> absl::StatusOr<std::unique_ptr<Device>> {
    TENSORD_RETURN_IF_ERROR(plan->Make());
    TENSORD_ASSIGN_OR_RETURN(std::unique_ptr<Device> device,
                             MakeCpuDevice(name, limit_bytes, threads));
    return MakeFaultyDevice(std::move(device), plan);
  }});
}

}  // namespace

absl::StatusOr<std::vector<std::unique_ptr<Device>>> MakeDevices(
    const std::vector<DeviceRequest>& asked, int cpu_threads, FaultPlans* faults) {
  const std::vector<DeviceRequest> requests = asked.empty() ? Everything() : asked;
  TENSORD_RETURN_IF_ERROR(CheckCuda(requests));
  const auto cpus =
      static_cast<int>(std::count_if(requests.begin(), requests.end(), [](const DeviceRequest& r) {
        return r.kind == DeviceKind::kCpu;
      }));
  std::vector<std::unique_ptr<Device>> devices;
  int next_cpu = 0, next_cuda = 0;
  for (const DeviceRequest& request : requests) {
    TENSORD_ASSIGN_OR_RETURN(const int64_t limit, LimitOf(request, requests));
    std::unique_ptr<Device> device;
    if (request.kind == DeviceKind::kCuda) {
      TENSORD_ASSIGN_OR_RETURN(
          device, MakeCuda({DeviceKind::kCuda, next_cuda++}, request.physical_index, limit));
    } else if (request.kind == DeviceKind::kCpu) {
      const int threads = ThreadsOf(next_cpu, cpus, cpu_threads);
      const DeviceName name = {DeviceKind::kCpu, next_cpu++};
      TENSORD_ASSIGN_OR_RETURN(device, request.faulty ? MakeFaulty(name, limit, threads, faults)
                                                      : MakeCpuDevice(name, limit, threads));
    } else {
      return absl::InvalidArgumentError("a device request names no kind of device");
    }
    devices.push_back(std::move(device));
  }
  return devices;
}

std::string CudaUnavailableReason() {
  std::string reason;
  return CudaDeviceCount(&reason) > 0 ? "" : reason;
}

}  // namespace tensord::server
