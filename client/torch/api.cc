#include "api.h"

#include <ATen/Context.h>
#include <c10/core/AutogradState.h>
#include <c10/util/Exception.h>
#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <exception>
#include <string>
#include <utility>
#include <vector>

#include "guarded.h"
#include "value_errors.h"

namespace torch_tensord {
namespace {

constexpr size_t kMaxDevices = 127;  // c10::DeviceIndex is an int8_t

std::atomic<const TensordApi*> table{nullptr};
// Throws PyTorch's exception for an exception of Python that is set. Null: the program isn't in
// Python.
std::atomic<void (*)()> throw_python_error{nullptr};

struct Devices {
  std::atomic<int> count{0};  // 0: not connected yet
  std::atomic<int> connection{0};
  std::array<std::atomic<TensordDevice*>, kMaxDevices> all = {};
  // The devices of the previous connection, which other threads may still use. While a thread holds
  // this mutex, it may change the other members.
  Guarded<std::vector<TensordDevice*>> former;
  pid_t process = 0;

  // Takes ownership of the references to the devices. Returns their number.
  int Set(c10::ArrayRef<TensordDevice*> found) {
    for (size_t i = 0; i < found.size(); ++i) all[i].store(found[i], std::memory_order_relaxed);
    process = getpid();
    count.store(static_cast<int>(found.size()), std::memory_order_release);
    return static_cast<int>(found.size());
  }
};
Devices& devices() {
  static auto* const holder = new Devices;  // never destroyed: late destructors may use it
  return *holder;
}

thread_local c10::DeviceIndex current_device = 0;

// Replaces the advice in a message of the client library by that for a program of PyTorch.
std::string ForTorch(std::string message) {
  // In C++, Connect() and Resume() alone close connections.
  constexpr std::string_view kClosed = "close has closed the connection to the tensord server at ";
  if (const size_t at = message.find(kClosed); at != std::string::npos && !InPython()) {
    const size_t address = at + kClosed.size();
    return message.substr(0, at) + "this tensor belongs to the earlier connection to " +
           message.substr(address, message.find(';', address) - address) +
           ", which Connect() or Resume() has closed: copy a value into it (x.copy_()), or make it "
           "again";
  }
  const std::string resume = InPython() ? "torch_tensord.resume()" : "torch_tensord::Resume()";
  for (const char* const other : {"call tensord.connect() again", "connect again (tensord.connect)",
                                  "make a new Client with Client::Connect",
                                  "connect again (Client::Connect)", "connect again"}) {
    if (const size_t at = message.find(other); at != std::string::npos) {
      return message.replace(at, std::strlen(other),
                             "call " + resume + ", and load the last checkpoint");
    }
  }
  return message;
}

void UseTable(const TensordApi* given) {
  TORCH_CHECK(given->version >= TENSORD_C_API_VERSION,
              "torch_tensord needs a newer tensord: its table of functions has version ",
              given->version, ", and ", TENSORD_C_API_VERSION, " is needed");
  table.store(given);
}

// Loads the C library of tensord, for a program without Python.
const TensordApi* LoadTable() {
  constexpr const char* kLibrary = "libtensord_c.so.0";
  void* const library = dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);
  const char* const problem = library == nullptr ? dlerror() : "";
  TORCH_CHECK(library != nullptr, "tensord: can't load ", kLibrary, " (", problem,
              "): link the program with it, or name its folder in LD_LIBRARY_PATH");
  const auto get = reinterpret_cast<decltype(&tensord_api)>(dlsym(library, "tensord_api"));
  TORCH_CHECK(get != nullptr, "tensord: ", kLibrary, " has no function tensord_api");
  UseTable(get());
  return table.load();
}

std::atomic<bool> engine_has_threads{true};

}  // namespace

void UsePython(const TensordApi* given, void (*throw_error)()) {
  UseTable(given);
  throw_python_error.store(throw_error);
}
bool InPython() { return throw_python_error.load() != nullptr; }

void RunBackwardOnCallingThread() {
  thread_local bool done = false;
  const bool has_threads = engine_has_threads.load(std::memory_order_relaxed);
  if (C10_LIKELY(done && has_threads)) return;
  done = true;
  c10::AutogradState& state = c10::AutogradState::get_tls_state();
  if (!state.get_multithreading_enabled() || (has_threads && at::hasCUDA())) return;
  state.set_multithreading_enabled(false);
}

c10::DeviceIndex NumBackwardThreads() {
  const int count = NumKnownDevices();
  if (count == 0) engine_has_threads.store(false);
  return static_cast<c10::DeviceIndex>(count);
}

const TensordApi& Api() {
  const TensordApi* const found = table.load(std::memory_order_acquire);
  return C10_LIKELY(found != nullptr) ? *found : *LoadTable();
}

void ThrowInterrupted() {
  if (const auto thrower = throw_python_error.load(); thrower != nullptr) thrower();
  C10_THROW_ERROR(Error, "tensord: a wait was interrupted");
}

namespace {

// If the server's op has no kernel for a dtype, returns PyTorch's words for this. Otherwise returns
// an empty text. `message` says which dtypes the op takes.
std::string MissingDType(const std::string& message, const char* what) {
  constexpr std::string_view kNeeds[] = {"needs a floating dtype, not ",
                                         "needs integers or bool, not ",
                                         "needs an integer dtype, not "};
  for (const std::string_view needs : kNeeds) {
    const size_t found = message.find(needs);
    if (found == std::string::npos) continue;
    const size_t start = found + needs.size();
    const std::string dtype = message.substr(start, message.find(':', start) - start);
    return c10::str('"', what, "\" not implemented for '", dtype, "': ");
  }
  return message.find("is not defined for bool") == std::string::npos
             ? ""
             : c10::str('"', what, "\" not implemented for 'bool': ");
}

}  // namespace

void ThrowError(int code, TensordError* error, const char* what) {
  constexpr int kCancelled = 1, kUnimplemented = 12, kUnavailable = 14, kDataLoss = 15;
  if (code == kCancelled && Api().raised() != 0) {
    Api().release_error(error);
    ThrowInterrupted();
  }
  std::string message = error == nullptr ? "an error without a text" : Api().error_message(error);
  const std::string reason = error == nullptr ? "" : Api().error_reason(error);
  Api().release_error(error);
  message = ExplainValueError(std::move(message));
  if (message.find("tensord") == std::string::npos) message = c10::str("tensord: ", message);
  if (what[0] != '\0' && message.find(what) == std::string::npos) {
    message = c10::str(what, ": ", message);
  }
  if (reason == "DEVICE_OUT_OF_MEMORY" || reason == "SESSION_BYTES_EXCEEDED" ||
      reason == "PRINCIPAL_BYTES_EXCEEDED") {
    C10_THROW_ERROR(OutOfMemoryError, message);
  }
  if (const std::string missing = MissingDType(message, what); !missing.empty())
    C10_THROW_ERROR(NotImplementedError, missing + message);
  if (code == kUnimplemented) C10_THROW_ERROR(NotImplementedError, message);
  if (code == kUnavailable || code == kDataLoss ||
      message.find("has closed the connection") != std::string::npos) {
    throw c10::AcceleratorError({__func__, __FILE__, __LINE__}, code, ForTorch(message));
  }
  C10_THROW_ERROR(Error, message);
}

namespace {

// Returns the devices of the current connection. Takes the interpreter's lock, so the caller must
// not hold another lock.
std::vector<TensordDevice*> ListDevices() {
  std::vector<TensordDevice*> found(kMaxDevices);
  size_t count = 0;
  TensordError* error = nullptr;
  Check(Api().list_devices(found.data(), found.size(), &count, &error), error, "");
  found.resize(std::min(count, kMaxDevices));
  TORCH_CHECK(!found.empty(), "tensord: the server has no devices");
  return found;
}

void Release(const std::vector<TensordDevice*>& released) {
  for (TensordDevice* device : released) Api().release_device(device);
}

}  // namespace

int NumDevices() {
  RunBackwardOnCallingThread();
  if (const int count = NumKnownDevices(); count > 0) return count;
  Devices& known = devices();
  const std::vector<TensordDevice*> found = ListDevices();
  {
    const auto lock = known.former.Lock();
    if (known.count.load() == 0) return known.Set(found);
  }
  Release(found);
  return known.count.load();
}

int ReplaceDevices() {
  Devices& known = devices();
  const std::vector<TensordDevice*> found = ListDevices();
  std::vector<TensordDevice*> former, unused;
  {
    const auto kept = known.former.Lock();
    for (int i = 0; i < known.count.load(); ++i) former.push_back(known.all[i].load());
    known.Set(found);
    ++known.connection;
    ForgetOrigins();
    unused = std::exchange(*kept, former);
  }
  // Another thread may have set the devices of this connection already.
  for (TensordDevice* device : former) {
    const bool in_use = std::any_of(found.begin(), found.end(), [device](TensordDevice* each) {
      return Api().same_connection(device, each) != 0;
    });
    if (!in_use) Api().close(device);
  }
  Release(unused);
  return static_cast<int>(found.size());
}

void ForEachDevice(const std::function<void(const TensordDevice*)>& look) {
  Devices& known = devices();
  const auto lock = known.former.Lock();
  for (int i = 0; i < known.count.load(); ++i) look(known.all[i].load());
}

int ConnectionNumber() { return devices().connection.load(std::memory_order_relaxed); }

int NumKnownDevices() { return devices().count.load(std::memory_order_acquire); }
bool IsInitialized() { return NumKnownDevices() > 0; }
bool InBadFork() { return IsInitialized() && devices().process != getpid(); }

TensordDevice* DeviceAt(c10::DeviceIndex index) {
  const int count = NumDevices();
  TORCH_CHECK(index >= 0 && index < count, "tensord:", static_cast<int>(index),
              " doesn't exist: the connection has ", count, count == 1 ? " device" : " devices");
  return devices().all[index].load(std::memory_order_relaxed);
}

c10::DeviceIndex DeviceOf(const TensordTensor* tensor) {
  TensordDevice* device = nullptr;
  Api().device(tensor, &device);
  const std::string name = Api().device_name(device), server = Api().device_server(device);
  Api().release_device(device);
  const auto count = static_cast<c10::DeviceIndex>(NumDevices());
  for (c10::DeviceIndex i = 0; i < count; ++i) {
    if (name == Api().device_name(DeviceAt(i)) && server == Api().device_server(DeviceAt(i))) {
      return i;
    }
  }
  return -1;
}

TensordMemory MemoryOf(c10::DeviceIndex device) {
  TensordMemory memory = {};
  TensordError* error = nullptr;
  Check(Api().device_memory(DeviceAt(device), &memory, &error), error, "memory");
  return memory;
}

c10::DeviceIndex CurrentDevice() { return current_device; }
void SetCurrentDevice(c10::DeviceIndex index) { current_device = index < 0 ? 0 : index; }

namespace {

[[noreturn]] void ThrowNoDType(at::ScalarType dtype) {
  const bool is_complex = at::isComplexType(dtype);
  const char* const help =
      is_complex ? "keep complex tensors on the CPU, and copy real ones to the device, such as "
                   "x.abs() or torch.view_as_real(x)"
      : at::isQIntType(dtype)
          ? "keep quantized tensors on the CPU, and copy x.dequantize() to the device"
          : "convert the tensor, for example with x.to(torch.bfloat16), or keep it on the CPU";
  C10_THROW_ERROR(NotImplementedError, c10::str("tensord has no dtype ", dtype, ": ", help));
}

}  // namespace

int32_t ToServerDType(at::ScalarType dtype) {
  switch (dtype) {
    case at::kBool:
      return TENSORD_BOOL;
    case at::kByte:
      return TENSORD_UINT8;
    case at::kChar:
      return TENSORD_INT8;
    case at::kShort:
      return TENSORD_INT16;
    case at::kInt:
      return TENSORD_INT32;
    case at::kLong:
      return TENSORD_INT64;
    case at::kHalf:
      return TENSORD_FLOAT16;
    case at::kBFloat16:
      return TENSORD_BFLOAT16;
    case at::kFloat:
      return TENSORD_FLOAT32;
    case at::kDouble:
      return TENSORD_FLOAT64;
    case at::kUInt16:
      return TENSORD_UINT16;
    case at::kUInt32:
      return TENSORD_UINT32;
    case at::kUInt64:
      return TENSORD_UINT64;
    default:
      ThrowNoDType(dtype);
  }
}

at::ScalarType ToTorchDType(int32_t dtype) {
  constexpr at::ScalarType kTypes[] = {at::ScalarType::Undefined,
                                       at::kBool,
                                       at::kByte,
                                       at::kChar,
                                       at::kInt,
                                       at::kLong,
                                       at::kHalf,
                                       at::kBFloat16,
                                       at::kFloat,
                                       at::kDouble,
                                       at::kShort,
                                       at::kUInt16,
                                       at::kUInt32,
                                       at::kUInt64};
  TORCH_CHECK(dtype > 0 && dtype <= TENSORD_UINT64,
              "tensord: PyTorch has no dtype with the number ", dtype);
  return kTypes[dtype];
}

}  // namespace torch_tensord
