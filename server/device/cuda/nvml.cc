#include "tensord/server/device/cuda/nvml.h"

#include <dlfcn.h>
#include <unistd.h>

#include <cstdint>
#include <type_traits>
#include <vector>

namespace tensord::server::cuda {
namespace {

// The part of nvml.h that is used, because the toolkit's minimal packages don't have the header.
// Source: NVML API Reference Guide, https://docs.nvidia.com/deploy/nvml-api.
using NvmlReturn = int;
using NvmlDevice = void*;
constexpr NvmlReturn kSuccess = 0;               // NVML_SUCCESS
constexpr NvmlReturn kInsufficientSize = 7;      // NVML_ERROR_INSUFFICIENT_SIZE
constexpr uint64_t kNotAvailable = ~uint64_t{};  // NVML_VALUE_NOT_AVAILABLE

struct NvmlUtilization {  // nvmlUtilization_t
  unsigned gpu;
  unsigned memory;
};
struct NvmlMemory {  // nvmlMemory_v2_t
  unsigned version;
  unsigned long long total;
  unsigned long long reserved;
  unsigned long long free;
  unsigned long long used;
};
constexpr unsigned kMemoryVersion = sizeof(NvmlMemory) | 2u << 24;
struct NvmlProcess {  // nvmlProcessInfo_t of nvmlDeviceGetComputeRunningProcesses_v3
  unsigned pid;
  unsigned long long used_memory;
  unsigned gpu_instance;
  unsigned compute_instance;
};

}  // namespace

struct Nvml::Functions {
  NvmlReturn (*init)();
  NvmlReturn (*find_device)(const char* uuid, NvmlDevice* device);
  NvmlReturn (*get_utilization)(NvmlDevice device, NvmlUtilization* utilization);
  NvmlReturn (*get_memory)(NvmlDevice device, NvmlMemory* memory);
  NvmlReturn (*get_processes)(NvmlDevice device, unsigned* count, NvmlProcess* processes);

  // Returns the bytes that this process holds on the GPU. If the driver doesn't list this process,
  // as in most containers, returns no value.
  std::optional<int64_t> OwnBytes(NvmlDevice device) const {
    std::vector<NvmlProcess> processes(16);
    auto count = static_cast<unsigned>(processes.size());
    NvmlReturn result = get_processes(device, &count, processes.data());
    if (result == kInsufficientSize) {
      processes.resize(count + 16);  // more may start meanwhile
      count = static_cast<unsigned>(processes.size());
      result = get_processes(device, &count, processes.data());
    }
    if (result != kSuccess) return std::nullopt;
    for (unsigned i = 0; i < count; ++i) {
      const NvmlProcess& process = processes[i];
      if (process.pid != static_cast<unsigned>(getpid())) continue;
      if (process.used_memory == kNotAvailable) return std::nullopt;
      return static_cast<int64_t>(process.used_memory);
    }
    return std::nullopt;
  }
};

Nvml::Nvml(const char* library) {
  void* handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) return;
  static_assert(sizeof(NvmlMemory) == 40 && sizeof(NvmlProcess) == 24);
  auto* functions = new Functions();  // kept, as the library is
  bool complete = true;
  const auto find = [&](auto* function, const char* name) {
    *function = reinterpret_cast<std::remove_pointer_t<decltype(function)>>(dlsym(handle, name));
    complete = complete && *function != nullptr;
  };
  find(&functions->init, "nvmlInit_v2");
  find(&functions->find_device, "nvmlDeviceGetHandleByUUID");
  find(&functions->get_utilization, "nvmlDeviceGetUtilizationRates");
  find(&functions->get_memory, "nvmlDeviceGetMemoryInfo_v2");
  find(&functions->get_processes, "nvmlDeviceGetComputeRunningProcesses_v3");
  if (complete && functions->init() == kSuccess) {
    functions_ = functions;
  } else {
    delete functions;
  }
}

HardwareUse Nvml::Query(const std::string& uuid) const {
  HardwareUse use;
  NvmlDevice device = nullptr;
  if (functions_ == nullptr || functions_->find_device(uuid.c_str(), &device) != kSuccess) {
    return use;
  }
  NvmlUtilization utilization = {};
  if (functions_->get_utilization(device, &utilization) == kSuccess) {
    use.utilization_percent = static_cast<int>(utilization.gpu);
  }
  NvmlMemory memory = {.version = kMemoryVersion};
  if (functions_->get_memory(device, &memory) == kSuccess) {
    use.used_bytes = static_cast<int64_t>(memory.used);
    use.own_bytes = functions_->OwnBytes(device);
  }
  return use;
}

const Nvml& ProcessNvml() {
  static const auto* const nvml = new Nvml();
  return *nvml;
}

}  // namespace tensord::server::cuda
