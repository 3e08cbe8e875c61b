#include "api.h"

#include <c10/util/Exception.h>
#include <unistd.h>

#include <atomic>
#include <mutex>
#include <vector>

namespace torch_tensord {
namespace {

constexpr size_t kMaxDevices = 127;  // c10::DeviceIndex is an int8_t

const TensordApi* table = nullptr;

struct Devices {
  std::mutex mutex;
  std::atomic<int> count{0};  // 0: not connected yet
  TensordDevice* all[kMaxDevices] = {};
  pid_t process = 0;
};
Devices& devices() {
  static auto* const holder = new Devices;  // never destroyed: late destructors may use it
  return *holder;
}

thread_local c10::DeviceIndex current_device = 0;

}  // namespace

const TensordApi& Api() {
  TORCH_CHECK(table != nullptr, "tensord: import torch_tensord first");
  return *table;
}
void SetApi(int64_t address) {
  const auto* given = reinterpret_cast<const TensordApi*>(address);
  TORCH_CHECK(given->version >= TENSORD_C_API_VERSION,
              "torch_tensord needs a newer package tensord: its table of ",
              "functions has version ", given->version, ", and ", TENSORD_C_API_VERSION,
              " is needed");
  table = given;
}

void ThrowError(int code, TensordError* error, const char* what) {
  std::string message = error == nullptr ? "an error without a text" : Api().error_message(error);
  const std::string reason = error == nullptr ? "" : Api().error_reason(error);
  Api().release_error(error);
  if (message.compare(0, 7, "tensord") != 0) message = c10::str("tensord: ", message);
  if (what[0] != '\0' && message.find(what) == std::string::npos) {
    message = c10::str(what, ": ", message);
  }
  if (reason == "DEVICE_OUT_OF_MEMORY") C10_THROW_ERROR(OutOfMemoryError, message);
  if (code == 12) C10_THROW_ERROR(NotImplementedError, message);
  if (code == 14 || code == 15) {
    throw c10::AcceleratorError({__func__, __FILE__, __LINE__}, code, message);
  }
  C10_THROW_ERROR(Error, message);
}

int NumDevices() {
  Devices& known = devices();
  if (const int count = known.count.load(std::memory_order_acquire); count > 0) return count;
  // list_devices takes the interpreter's lock. So this thread must not hold `mutex` then.
  TensordDevice* found[kMaxDevices] = {};
  size_t count = 0;
  TensordError* error = nullptr;
  Check(Api().list_devices(found, kMaxDevices, &count, &error), error, "connect");
  count = std::min(count, kMaxDevices);
  TORCH_CHECK(count > 0, "tensord: the server has no devices");
  std::lock_guard<std::mutex> lock(known.mutex);
  if (known.count.load() > 0) {
    for (size_t i = 0; i < count; ++i) Api().release_device(found[i]);
    return known.count.load();
  }
  std::copy(found, found + count, known.all);
  known.process = getpid();
  known.count.store(static_cast<int>(count), std::memory_order_release);
  return static_cast<int>(count);
}

int TryNumDevices() noexcept {
  try {
    return NumDevices();
  } catch (const std::exception& e) {
    try {
      TORCH_WARN("tensord has no devices: ", e.what());
    } catch (...) {
    }
    return 0;
  }
}

bool IsInitialized() { return devices().count.load() > 0; }
bool InBadFork() { return IsInitialized() && devices().process != getpid(); }

TensordDevice* DeviceAt(c10::DeviceIndex index) {
  const int count = NumDevices();
  TORCH_CHECK(index >= 0 && index < count, "tensord:", static_cast<int>(index),
              " doesn't exist: the connection has ", count, count == 1 ? " device" : " devices");
  return devices().all[index];
}

c10::DeviceIndex CurrentDevice() { return current_device; }
void SetCurrentDevice(c10::DeviceIndex index) { current_device = index < 0 ? 0 : index; }

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
      C10_THROW_ERROR(NotImplementedError, c10::str("tensord has no dtype ", dtype));
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
