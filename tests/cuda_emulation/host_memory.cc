// Registered host memory. As in CUDA, whole pages are registered, and each page at most once. If a
// program unmaps memory that is registered, the emulation doesn't notice. A later copy from or to
// that memory faults.
#include "tensord/tests/cuda_emulation/host_memory.h"

#include <unistd.h>

#include <cstdint>
#include <map>

#include "absl/strings/str_cat.h"
#include "tensord/common/mutex.h"
#include "tensord/tests/cuda_emulation/control.h"
#include "tensord/tests/cuda_emulation/device.h"

namespace tensord::cuda_emulation {
namespace {

struct Range {
  uintptr_t end;
  int device;
};

struct Registrations {
  Mutex mu;
  std::map<uintptr_t, Range> ranges ABSL_GUARDED_BY(mu);  // by start; they don't overlap
};

Registrations& TheRegistrations() {
  static auto* registrations = new Registrations;  // never destroyed
  return *registrations;
}

uintptr_t PageOf(uintptr_t address) {
  static const auto bytes = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  return address / bytes;
}

cudaError_t Refuse(cudaError_t error, absl::string_view call, uintptr_t data,
                   absl::string_view why) {
  Report(absl::StrCat(call, ": 0x", absl::Hex(data), " ", why));
  return RecordError(error);
}

}  // namespace

bool IsRegistered(const void* data, size_t bytes) {
  const auto start = reinterpret_cast<uintptr_t>(data);
  Registrations& registrations = TheRegistrations();
  MutexLock lock(&registrations.mu);
  auto range = registrations.ranges.upper_bound(start);
  if (range == registrations.ranges.begin()) return false;
  --range;
  return start + bytes <= range->second.end;
}

void DropRegistrations(int device) {
  Registrations& registrations = TheRegistrations();
  MutexLock lock(&registrations.mu);
  std::erase_if(registrations.ranges,
                [&](const auto& range) { return range.second.device == device; });
}

}  // namespace tensord::cuda_emulation

using namespace tensord;                  // NOLINT(google-build-using-namespace)
using namespace tensord::cuda_emulation;  // NOLINT(google-build-using-namespace)

extern "C" {

cudaError_t cudaHostRegister(void* data, size_t bytes, unsigned flags) {
  static constexpr char kCall[] = "cudaHostRegister";
  TENSORD_EMULATION_ENTER(CurrentDevice());
  const auto start = reinterpret_cast<uintptr_t>(data);
  if (data == nullptr || bytes == 0) {
    return Refuse(cudaErrorInvalidValue, kCall, start, "is null, or its size is 0 bytes");
  }
  if (flags != cudaHostRegisterPortable) {
    Report("cudaHostRegister: only cudaHostRegisterPortable is emulated");
    return RecordError(cudaErrorNotSupported);
  }
  Registrations& registrations = TheRegistrations();
  MutexLock lock(&registrations.mu);
  for (const auto& [other, range] : registrations.ranges) {
    if (PageOf(other) <= PageOf(start + bytes - 1) && PageOf(start) <= PageOf(range.end - 1)) {
      return RecordError(cudaErrorHostMemoryAlreadyRegistered);
    }
  }
  registrations.ranges[start] = {start + bytes, CurrentDevice()};
  return cudaSuccess;
}

cudaError_t cudaHostUnregister(void* data) {
  static constexpr char kCall[] = "cudaHostUnregister";
  TENSORD_EMULATION_ENTER(CurrentDevice());
  const auto start = reinterpret_cast<uintptr_t>(data);
  if (IsRegistered(data, 1)) {
    Registrations& registrations = TheRegistrations();
    MutexLock lock(&registrations.mu);
    if (registrations.ranges.erase(start) == 1) return cudaSuccess;
    return Refuse(cudaErrorInvalidValue, kCall, start, "is not the start of registered memory");
  }
  return RecordError(cudaErrorHostMemoryNotRegistered);
}

}  // extern "C"
