// Pinned host memory. As in CUDA, whole pages are registered, and each page at most once. If a
// program unmaps memory that is registered, the emulation doesn't notice. A later copy from or to
// that memory faults.
#include "tensord/tests/cuda_emulation/host_memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <map>

#include "absl/strings/str_cat.h"
#include "tensord/common/util/mutex.h"
#include "tensord/tests/cuda_emulation/control.h"
#include "tensord/tests/cuda_emulation/device.h"
#include "tensord/tests/cuda_emulation/stream.h"

namespace tensord::cuda_emulation {
namespace {

struct Range {
  uintptr_t end;
  int device;
};
using Ranges = std::map<uintptr_t, Range>;  // by start; they don't overlap

struct HostMemory {
  Mutex mu;
  Ranges registered ABSL_GUARDED_BY(mu);
  Ranges allocated ABSL_GUARDED_BY(mu);
};

HostMemory& TheHostMemory() {
  static auto* memory = new HostMemory;  // never destroyed
  return *memory;
}

// Returns the range that holds `address`; end() if there is none.
Ranges::const_iterator FindRange(const Ranges& ranges, uintptr_t address) {
  auto range = ranges.upper_bound(address);
  if (range == ranges.begin()) return ranges.end();
  --range;
  return address < range->second.end ? range : ranges.end();
}

void Unmap(uintptr_t start, const Range& range) {
  munmap(reinterpret_cast<void*>(start), range.end - start);
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

cudaError_t AllocatePinned(void** out, size_t bytes, int device) {
  const size_t mapped = std::max<size_t>(bytes, 1);
  void* data = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) return cudaErrorMemoryAllocation;
  const auto start = reinterpret_cast<uintptr_t>(data);
  HostMemory& memory = TheHostMemory();
  MutexLock lock(&memory.mu);
  memory.allocated[start] = {start + mapped, device};
  *out = data;
  return cudaSuccess;
}

cudaError_t FreePinned(void* data, absl::string_view call) {
  const auto start = reinterpret_cast<uintptr_t>(data);
  HostMemory& memory = TheHostMemory();
  MutexLock lock(&memory.mu);
  const auto range = memory.allocated.find(start);
  if (range == memory.allocated.end()) {
    return Refuse(cudaErrorInvalidValue, call, start, "is not the start of pinned host memory");
  }
  Unmap(start, range->second);
  memory.allocated.erase(range);
  return cudaSuccess;
}

cudaError_t CheckPinned(const void* data, size_t bytes, absl::string_view call) {
  const auto start = reinterpret_cast<uintptr_t>(data);
  HostMemory& memory = TheHostMemory();
  MutexLock lock(&memory.mu);
  auto range = FindRange(memory.registered, start);
  if (range != memory.registered.end() && start + bytes <= range->second.end) return cudaSuccess;
  range = FindRange(memory.allocated, start);
  if (range == memory.allocated.end()) {
    return Refuse(cudaErrorInvalidValue, call, start, "is not in pinned host memory");
  }
  if (start + bytes <= range->second.end) return cudaSuccess;
  return Refuse(cudaErrorInvalidValue, call, start,
                absl::StrCat("is the start of ", bytes, " bytes that go past an allocation's end"));
}

void ResetHostMemory(int device) {
  HostMemory& memory = TheHostMemory();
  MutexLock lock(&memory.mu);
  const auto is_of_device = [&](const auto& range) { return range.second.device == device; };
  for (const auto& [start, range] : memory.allocated) {
    if (range.device == device) Unmap(start, range);
  }
  std::erase_if(memory.allocated, is_of_device);
  std::erase_if(memory.registered, is_of_device);
}

size_t LivePinnedAllocations() {
  HostMemory& memory = TheHostMemory();
  MutexLock lock(&memory.mu);
  return memory.allocated.size();
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
  HostMemory& memory = TheHostMemory();
  MutexLock lock(&memory.mu);
  for (const auto& [other, range] : memory.registered) {
    if (PageOf(other) <= PageOf(start + bytes - 1) && PageOf(start) <= PageOf(range.end - 1)) {
      return RecordError(cudaErrorHostMemoryAlreadyRegistered);
    }
  }
  memory.registered[start] = {start + bytes, CurrentDevice()};
  return cudaSuccess;
}

// Blocks until the current device has run all work that is enqueued now. CUDA documents nothing
// about this, but its drivers may do it.
cudaError_t cudaHostUnregister(void* data) {
  static constexpr char kCall[] = "cudaHostUnregister";
  TENSORD_EMULATION_ENTER(CurrentDevice());
  AwaitStreams(CurrentDevice());
  const auto start = reinterpret_cast<uintptr_t>(data);
  HostMemory& memory = TheHostMemory();
  MutexLock lock(&memory.mu);
  const auto range = FindRange(memory.registered, start);
  if (range == memory.registered.end()) return RecordError(cudaErrorHostMemoryNotRegistered);
  if (range->first != start) {
    return Refuse(cudaErrorInvalidValue, kCall, start, "is not the start of registered memory");
  }
  memory.registered.erase(range);
  return cudaSuccess;
}

}  // extern "C"
