#include "tensord/tests/cuda_emulation/memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>

#include "absl/strings/str_cat.h"
#include "tensord/common/mutex.h"
#include "tensord/tests/cuda_emulation/device.h"
#include "tensord/tests/cuda_emulation/host_memory.h"

namespace tensord::cuda_emulation {
namespace {

constexpr size_t kAlignment = 256;  // what cudaMalloc guarantees
constexpr size_t kPatternBytes = 64 << 10;
constexpr unsigned char kPattern = 0xcd;
constexpr size_t kMaxFreed = 2048;  // freed allocations that stay known, and inaccessible

struct Allocation {
  Space space = Space::kDevice;
  size_t bytes = 0;
  int device = 0;
  bool freed = false;
  void* mapping = nullptr;  // with both inaccessible pages
  size_t mapping_bytes = 0;
};

using Allocations = std::map<const char*, Allocation>;

struct Table {
  Mutex mu;
  Allocations allocations ABSL_GUARDED_BY(mu);
  std::deque<const char*> freed ABSL_GUARDED_BY(mu);  // the oldest first

  // Returns the allocation that holds `data`; end() if there is none.
  Allocations::iterator Find(const void* data) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) {
    auto it = allocations.upper_bound(static_cast<const char*>(data));
    if (it == allocations.begin()) return allocations.end();
    --it;
    const auto offset = static_cast<size_t>(static_cast<const char*>(data) - it->first);
    return offset < std::max<size_t>(it->second.bytes, 1) ? it : allocations.end();
  }
};

Table& TheTable() {
  static auto* table = new Table;  // never destroyed
  return *table;
}

size_t RoundUp(size_t bytes, size_t unit) { return (bytes + unit - 1) / unit * unit; }

// The bytes between an allocation's end and the inaccessible page. They hold kPattern, too.
size_t PaddingBytes(size_t bytes) {
  const size_t at_least_one = std::max<size_t>(bytes, 1);
  return RoundUp(at_least_one, kAlignment) - bytes;
}

// Ends the process if the padding has changed: a kernel or copy of the backend is wrong, and a real
// device would have corrupted other memory without an error.
void CheckPadding(const char* data, size_t bytes) {
  const char* padding = data + bytes;
  for (size_t i = 0; i < PaddingBytes(bytes); ++i) {
    if (static_cast<unsigned char>(padding[i]) == kPattern) continue;
    Report(absl::StrCat("device work wrote past the end of an allocation of ", bytes, " bytes"));
    std::abort();
  }
}

size_t PageBytes() {
  static const auto bytes = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  return bytes;
}

// Returns the start of the memory; null if the host has no more.
char* Map(size_t bytes, Allocation* allocation) {
  const size_t rounded = RoundUp(std::max<size_t>(bytes, 1), kAlignment);
  const size_t accessible = RoundUp(rounded, PageBytes());
  allocation->mapping_bytes = accessible + 2 * PageBytes();
  allocation->mapping = mmap(nullptr, allocation->mapping_bytes, PROT_NONE,
                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (allocation->mapping == MAP_FAILED) return nullptr;
  char* first_page = static_cast<char*>(allocation->mapping) + PageBytes();
  if (mprotect(first_page, accessible, PROT_READ | PROT_WRITE) != 0) {
    munmap(allocation->mapping, allocation->mapping_bytes);
    return nullptr;
  }
  return first_page + (accessible - rounded);
}

bool Reserve(int device, size_t bytes) {
  Device& d = DeviceAt(device);
  MutexLock lock(&d.mu);
  const auto wanted = static_cast<int64_t>(bytes);
  if (wanted < 0 || wanted > TheOptions().memory_bytes - d.used_bytes) return false;
  d.used_bytes += wanted;
  return true;
}

void Unreserve(int device, size_t bytes) {
  Device& d = DeviceAt(device);
  MutexLock lock(&d.mu);
  d.used_bytes -= static_cast<int64_t>(bytes);
}

cudaError_t Refuse(absl::string_view call, const void* data, absl::string_view why) {
  Report(absl::StrCat(call, ": 0x", absl::Hex(reinterpret_cast<uintptr_t>(data)), " ", why));
  return cudaErrorInvalidValue;
}

}  // namespace

cudaError_t AllocateOnDevice(void** out, size_t bytes, int device) {
  if (!Reserve(device, bytes)) return cudaErrorMemoryAllocation;
  Allocation allocation;
  allocation.bytes = bytes;
  allocation.device = device;
  char* data = Map(bytes, &allocation);
  if (data == nullptr) {
    Unreserve(device, bytes);
    return cudaErrorMemoryAllocation;
  }
  std::memset(data + bytes, kPattern, PaddingBytes(bytes));
  Table& table = TheTable();
  MutexLock lock(&table.mu);
  table.allocations[data] = allocation;
  *out = data;
  return cudaSuccess;
}

void FillWithPattern(void* data, size_t bytes) {
  std::memset(data, kPattern, std::min(bytes, kPatternBytes));
}

cudaError_t BeginFree(void* data, absl::string_view call, int* device) {
  Table& table = TheTable();
  MutexLock lock(&table.mu);
  const auto it = table.allocations.find(static_cast<const char*>(data));
  if (it == table.allocations.end() || it->second.space != Space::kDevice) {
    return Refuse(call, data, "is not the start of an allocation on a device");
  }
  if (it->second.freed) return Refuse(call, data, "is freed already");
  it->second.freed = true;
  if (device != nullptr) *device = it->second.device;
  return cudaSuccess;
}

void FinishFree(void* data) {
  Table& table = TheTable();
  MutexLock lock(&table.mu);
  const Allocation& allocation = table.allocations.at(static_cast<const char*>(data));
  CheckPadding(static_cast<const char*>(data), allocation.bytes);
  // A new mapping over the old one: inaccessible and without pages.
  mmap(allocation.mapping, allocation.mapping_bytes, PROT_NONE,
       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
  Unreserve(allocation.device, allocation.bytes);
  table.freed.push_back(static_cast<const char*>(data));
  if (table.freed.size() <= kMaxFreed) return;
  const auto oldest = table.allocations.find(table.freed.front());
  table.freed.pop_front();
  munmap(oldest->second.mapping, oldest->second.mapping_bytes);
  table.allocations.erase(oldest);
}

cudaError_t CheckMemory(const void* data, size_t bytes, Space space, absl::string_view call,
                        int device) {
  if (space == Space::kPinnedHost && IsRegistered(data, bytes)) return cudaSuccess;
  const absl::string_view kind =
      space == Space::kDevice ? "memory on a device" : "pinned host memory";
  Table& table = TheTable();
  MutexLock lock(&table.mu);
  const auto it = table.Find(data);
  if (it == table.allocations.end() || it->second.space != space) {
    return Refuse(call, data, absl::StrCat("is not in ", kind));
  }
  if (it->second.freed) return Refuse(call, data, absl::StrCat("is in freed ", kind));
  if (static_cast<const char*>(data) + bytes > it->first + it->second.bytes) {
    return Refuse(call, data,
                  absl::StrCat("begins ", bytes, " bytes that go past an allocation's end"));
  }
  if (device != kAnyDevice && it->second.device != device) {
    return Refuse(call, data,
                  absl::StrCat("is on device ", it->second.device, ", not on device ", device));
  }
  return cudaSuccess;
}

}  // namespace tensord::cuda_emulation

using namespace tensord;                  // NOLINT(google-build-using-namespace)
using namespace tensord::cuda_emulation;  // NOLINT(google-build-using-namespace)

extern "C" {

cudaError_t cudaMalloc(void** out, size_t bytes) {
  TENSORD_EMULATION_ENTER(CurrentDevice());
  const cudaError_t error = AllocateOnDevice(out, bytes, CurrentDevice());
  if (error == cudaSuccess) FillWithPattern(*out, bytes);
  return RecordError(error);
}

// Waits for the device, as CUDA's function does.
cudaError_t cudaFree(void* data) {
  TENSORD_EMULATION_ENTER(CurrentDevice());
  if (data == nullptr) return cudaSuccess;
  int device = 0;
  const cudaError_t error = BeginFree(data, "cudaFree", &device);
  if (error != cudaSuccess) return RecordError(error);
  const cudaError_t waited = SynchronizeDevice(device);
  FinishFree(data);
  return RecordError(waited);
}

cudaError_t cudaHostAlloc(void** out, size_t bytes, unsigned /*flags*/) {
  TENSORD_EMULATION_ENTER(CurrentDevice());
  if (posix_memalign(out, PageBytes(), bytes) != 0) return RecordError(cudaErrorMemoryAllocation);
  Allocation allocation;
  allocation.space = Space::kPinnedHost;
  allocation.bytes = bytes;
  Table& table = TheTable();
  MutexLock lock(&table.mu);
  table.allocations[static_cast<const char*>(*out)] = allocation;
  return cudaSuccess;
}

cudaError_t cudaFreeHost(void* data) {
  Table& table = TheTable();
  {
    MutexLock lock(&table.mu);
    const auto it = table.allocations.find(static_cast<const char*>(data));
    if (it == table.allocations.end() || it->second.space != Space::kPinnedHost) {
      return RecordError(Refuse("cudaFreeHost", data, "is not the start of pinned host memory"));
    }
    table.allocations.erase(it);
  }
  free(data);
  return cudaSuccess;
}

cudaError_t cudaMemGetInfo(size_t* free_bytes, size_t* total_bytes) {
  TENSORD_EMULATION_ENTER(CurrentDevice());
  *total_bytes = static_cast<size_t>(TheOptions().memory_bytes);
  *free_bytes = *total_bytes - static_cast<size_t>(UsedBytes(CurrentDevice()));
  return cudaSuccess;
}

}  // extern "C"
