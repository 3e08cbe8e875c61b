// The functions of torch.tensord, as ops of PyTorch, and the fallback for ops without a kernel.
#include <ATen/native/CPUFallback.h>
#include <torch/library.h>

#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>

#include "generator.h"
#include "kernels.h"

namespace torch_tensord {

void SetSyncDebugMode(int mode);
void SynchronizeDevice(c10::DeviceIndex device);

namespace {

std::mutex fallbacks_mutex;
std::map<std::string, int64_t> fallbacks;

bool FallbackAllowed() {
  const char* value = std::getenv("TENSORD_CPU_FALLBACK");
  return value != nullptr && std::strcmp(value, "0") != 0 && value[0] != '\0';
}

void Fallback(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const auto& name = op.schema().operator_name();
  const std::string text =
      name.overload_name.empty() ? name.name : name.name + "." + name.overload_name;
  if (!FallbackAllowed()) {
    C10_THROW_ERROR(
        NotImplementedError,
        c10::str(text, " isn't implemented on tensord; with TENSORD_CPU_FALLBACK=1 in the ",
                 "environment, this machine's CPU computes it"));
  }
  bool first = false;
  {
    std::lock_guard<std::mutex> lock(fallbacks_mutex);
    first = ++fallbacks[text] == 1;
  }
  if (first) TORCH_WARN("tensord: the CPU of this machine computes ", text);
  at::native::cpu_fallback(op, stack, true);
}

c10::DeviceIndex Index(int64_t device) { return static_cast<c10::DeviceIndex>(device); }

std::vector<int64_t> Memory(int64_t device) {
  TensordMemory memory = {};
  TensordError* error = nullptr;
  Check(Api().device_memory(DeviceAt(Index(device)), &memory, &error), error, "memory");
  return {memory.total_bytes, memory.limit_bytes, memory.used_bytes, memory.peak_bytes};
}

at::Tensor GetRngState(int64_t device) { return DefaultGenerator(Index(device)).get_state(); }
void SetRngState(int64_t device, const at::Tensor& state) {
  at::Generator(DefaultGenerator(Index(device))).set_state(state);
}

std::vector<std::string> SupportedOps() {
  std::vector<std::string> names;
  for (const c10::OperatorName& name :
       c10::Dispatcher::singleton().getRegistrationsForDispatchKey(c10::DispatchKey::PrivateUse1)) {
    names.push_back(name.overload_name.empty() ? name.name : name.name + "." + name.overload_name);
  }
  return names;
}

std::vector<std::string> Fallbacks() {
  std::lock_guard<std::mutex> lock(fallbacks_mutex);
  std::vector<std::string> lines;
  for (const auto& [name, count] : fallbacks) lines.push_back(name + " " + std::to_string(count));
  return lines;
}

}  // namespace

TORCH_LIBRARY_IMPL(_, PrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&Fallback>());
}

TORCH_LIBRARY(tensord, m) {
  m.def("_set_api(int address) -> ()", [](int64_t address) { SetApi(address); });
  m.def("_device_count() -> int", []() -> int64_t { return TryNumDevices(); });
  m.def("_connect() -> int", []() -> int64_t { return NumDevices(); });
  m.def("_is_initialized() -> bool", [] { return IsInitialized(); });
  m.def("_in_bad_fork() -> bool", [] { return InBadFork(); });
  m.def("_current_device() -> int", []() -> int64_t { return CurrentDevice(); });
  m.def("_set_device(int device) -> ()", [](int64_t device) {
    DeviceAt(Index(device));
    SetCurrentDevice(Index(device));
  });
  m.def("_exchange_device(int device) -> int", [](int64_t device) -> int64_t {
    const int64_t old = CurrentDevice();
    if (device >= 0) SetCurrentDevice(Index(device));
    return old;
  });
  m.def("_device_name(int device) -> str",
        [](int64_t device) { return std::string(Api().device_name(DeviceAt(Index(device)))); });
  m.def("_device_server(int device) -> str",
        [](int64_t device) { return std::string(Api().device_server(DeviceAt(Index(device)))); });
  m.def("_device_kind(int device) -> str",
        [](int64_t device) { return std::string(Api().device_kind(DeviceAt(Index(device)))); });
  m.def("_memory(int device) -> int[]", Memory);
  m.def("_synchronize(int device) -> ()", [](int64_t device) { SynchronizeDevice(Index(device)); });
  m.def("_manual_seed(int device, int seed) -> ()", [](int64_t device, int64_t seed) {
    at::Generator(DefaultGenerator(Index(device))).set_current_seed(static_cast<uint64_t>(seed));
  });
  m.def("_initial_seed(int device) -> int", [](int64_t device) {
    return static_cast<int64_t>(DefaultGenerator(Index(device)).current_seed());
  });
  m.def("_get_rng_state(int device) -> Tensor", GetRngState);
  m.def("_set_rng_state(int device, Tensor state) -> ()", SetRngState);
  m.def("_set_sync_debug_mode(int mode) -> ()",
        [](int64_t mode) { SetSyncDebugMode(static_cast<int>(mode)); });
  m.def("_get_sync_debug_mode() -> int", []() -> int64_t { return sync_debug_mode(); });
  m.def("_supported_ops() -> str[]", SupportedOps);
  m.def("_fallbacks() -> str[]", Fallbacks);
}

}  // namespace torch_tensord
