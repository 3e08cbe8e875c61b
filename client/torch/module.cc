// The functions of torch.tensord, as ops of PyTorch, and the fallback for ops without a kernel.
#include <ATen/native/CPUFallback.h>
#include <torch/library.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string_view>

#include "generator.h"
#include "guarded.h"
#include "kernels.h"

namespace torch_tensord {

void SetSyncDebugMode(int mode);
void SynchronizeDevice(c10::DeviceIndex device);

namespace {

Guarded<std::map<std::string, int64_t>> fallbacks;

bool FallbackAllowed() {
  const char* value = std::getenv("TENSORD_CPU_FALLBACK");
  return value != nullptr && std::strcmp(value, "0") != 0 && value[0] != '\0';
}

// Returns whether an op takes tensors of the CPU beside those of a device, whatever the device is.
bool TakesCpuTensors(const std::string& name) {
  return name.find("ctc_loss") != std::string::npos ||
         name.find("_pack_padded_sequence") != std::string::npos;
}

// If an op without a kernel has tensors on several devices, throws the error that names the
// devices: the program must mend that first.
void CheckSameDevices(const std::string& name, const torch::jit::Stack& stack,
                      size_t num_arguments) {
  std::vector<at::Tensor> tensors;
  for (size_t i = stack.size() - num_arguments; i < stack.size(); ++i) {
    if (stack[i].isTensor()) tensors.push_back(stack[i].toTensor());
    if (stack[i].isTensorList()) {
      for (const at::Tensor& each : stack[i].toTensorVector()) tensors.push_back(each);
    }
  }
  const auto ours = std::find_if(tensors.begin(), tensors.end(), [](const at::Tensor& each) {
    return each.defined() && IsOurs(each);
  });
  if (ours == tensors.end() || TakesCpuTensors(name)) return;
  for (const at::Tensor& each : tensors) {
    if (!each.defined() || IsNumber(each) || each.device() == ours->device()) continue;
    ThrowOtherDevice(name.c_str(), ours->device(), each.device());
  }
}

std::string NameOf(const c10::OperatorHandle& op) {
  const auto& name = op.schema().operator_name();
  return name.overload_name.empty() ? name.name : name.name + "." + name.overload_name;
}

[[noreturn]] void ThrowMissingKind(const std::string& op, const char* kind) {
  C10_THROW_ERROR(NotImplementedError,
                  c10::str(op, ": tensord has no ", kind,
                           " tensors. Compute this part on the CPU, ", "with inputs from x.cpu()"));
}

// Throws NotImplementedError. PyTorch calls this for sparse, quantized and nested tensors, which it
// makes out of tensors on a device, and for which tensord has no kernels.
template <int kKind>
void Refuse(const c10::OperatorHandle& op, torch::jit::Stack*) {
  constexpr const char* kKinds[] = {"sparse", "quantized", "nested"};
  ThrowMissingKind(NameOf(op), kKinds[kKind]);
}

// If an op makes or takes a kind of tensor that tensord doesn't have, returns the kind's name.
// Otherwise returns null.
const char* MissingKind(std::string_view name) {
  for (const char* const complex :
       {"::_fft_", "::complex", "::polar", "as_complex", "::linalg_eig", "::_linalg_eigvals"}) {
    if (name.find(complex) != std::string_view::npos &&
        name.find("linalg_eigh") == std::string_view::npos) {
      return "complex";
    }
  }
  if (name.find("sparse") != std::string_view::npos) return "sparse";
  if (name.find("quantize") != std::string_view::npos) return "quantized";
  return name.find("nested") != std::string_view::npos ? "nested" : nullptr;
}

void Fallback(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const std::string text = NameOf(op);
  if (!FallbackAllowed()) {
    CheckSameDevices(text, *stack, op.schema().arguments().size());
    if (const char* const kind = MissingKind(text); kind != nullptr) {
      ThrowMissingKind(text, kind);
    }
    C10_THROW_ERROR(
        NotImplementedError,
        c10::str(text, " isn't implemented on tensord: copy its inputs to the CPU with x.cpu(), ",
                 "and its result back. With TENSORD_CPU_FALLBACK=1 in the environment, the ",
                 "package does this for all such ops"));
  }
  const bool first = ++(*fallbacks.Lock())[text] == 1;
  if (first) TORCH_WARN("tensord: the CPU of this machine computes ", text);
  at::native::cpu_fallback(op, stack, true);
}

c10::DeviceIndex Index(int64_t device) { return static_cast<c10::DeviceIndex>(device); }

std::vector<int64_t> Memory(int64_t device) {
  const TensordMemory memory = MemoryOf(Index(device));
  return {memory.total_bytes, memory.limit_bytes, memory.used_bytes, memory.peak_bytes};
}

// Returns the numbers of TensordStats about waits, in the order of _WAIT_KINDS in _module.py, and
// the nanoseconds.
std::vector<int64_t> WaitStats(int64_t device) {
  TensordStats stats = {};
  if (IsInitialized()) Api().stats(DeviceAt(Index(device)), &stats);
  constexpr double kNanosecondsPerSecond = 1e9;
  return {stats.waits,
          stats.reads,
          stats.uploads,
          stats.tensor_waits,
          stats.synchronizes,
          stats.info_calls,
          stats.full_queue_waits,
          static_cast<int64_t>(stats.waited_seconds * kNanosecondsPerSecond)};
}

at::Tensor GetRngState(int64_t device) { return DefaultGenerator(Index(device)).get_state(); }
void SetRngState(int64_t device, const at::Tensor& state) {
  at::Generator(DefaultGenerator(Index(device))).set_state(state);
}

// Returns the tensor of a tensord.Tensor, whose address is `object`.
at::Tensor FromTensord(int64_t object) {
  TensordTensor* const given = Api().from_python(reinterpret_cast<void*>(object));
  TORCH_CHECK_TYPE(given != nullptr, "as_torch needs a tensord.Tensor");
  const Value value = c10::make_intrusive<Handle>(given);
  const c10::DeviceIndex device = DeviceOf(given);
  TORCH_CHECK(device >= 0,
              "as_torch: the tensor is on none of the devices of torch.tensord; "
              "torch_tensord.resume() makes those of a new connection its devices");
  return MakeTensor(value, device);
}

// Returns a reference to a new tensord.Tensor.
int64_t ToTensord(const at::Tensor& tensor) {
  TORCH_CHECK_TYPE(IsOurs(tensor), "as_tensord needs a tensor on a device of tensord");
  void* const made = Api().to_python(Read(tensor.resolve_neg())->tensor);
  TORCH_CHECK(made != nullptr, "as_tensord has failed");
  return reinterpret_cast<int64_t>(made);
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
  const auto known = fallbacks.Lock();
  std::vector<std::string> lines;
  for (const auto& [name, count] : *known) lines.push_back(name + " " + std::to_string(count));
  return lines;
}

}  // namespace

TORCH_LIBRARY_IMPL(_, PrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&Fallback>());
}

TORCH_LIBRARY_IMPL(_, SparsePrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&Refuse<0>>());
}
TORCH_LIBRARY_IMPL(_, SparseCsrPrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&Refuse<0>>());
}
TORCH_LIBRARY_IMPL(_, QuantizedPrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&Refuse<1>>());
}
TORCH_LIBRARY_IMPL(_, NestedTensorPrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&Refuse<2>>());
}

// Refuses nested tensors. PyTorch's kernel accepts tensors of any device. If one requires a
// gradient, a later error would end the process.
TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_nested_tensor_from_tensor_list",
         torch::CppFunction::makeFromBoxedFunction<&Refuse<2>>());
  m.impl("_nested_view_from_buffer", torch::CppFunction::makeFromBoxedFunction<&Refuse<2>>());
}

TORCH_LIBRARY(tensord, m) {
  m.def("_num_known_devices() -> int", []() -> int64_t { return NumKnownDevices(); });
  m.def("_connect() -> int", []() -> int64_t { return NumDevices(); });
  m.def("_is_initialized() -> bool", [] { return IsInitialized() && !InBadFork(); });
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
  m.def("_wait_stats(int device) -> int[]", WaitStats);
  m.def("_replace_devices() -> int", []() -> int64_t { return ReplaceDevices(); });
  m.def("_synchronize(int device) -> ()", [](int64_t device) { SynchronizeDevice(Index(device)); });
  m.def("_default_generator(int device) -> Generator?",
        [](int64_t device) { return DefaultGenerator(Index(device)); });
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
  m.def("_from_tensord(int object) -> Tensor", FromTensord);
  m.def("_to_tensord(Tensor tensor) -> int", ToTensord);
  m.def("_supported_ops() -> str[]", SupportedOps);
  m.def("_fallbacks() -> str[]", Fallbacks);
}

}  // namespace torch_tensord
