#include "tensord/tests/cuda_emulation/memory.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tensord/common/util/mutex.h"
#include "tensord/tests/cuda_emulation/address_space.h"
#include "tensord/tests/cuda_emulation/device.h"
#include "tensord/tests/cuda_emulation/host_memory.h"
#include "tensord/tests/cuda_emulation/memory_pool.h"

namespace tensord::cuda_emulation {
namespace {

constexpr size_t kAlignment = 256;  // what cudaMalloc guarantees
constexpr size_t kPatternBytes = 64 << 10;
constexpr unsigned char kPattern = 0xcd;
constexpr size_t kMaxFreed = 2048;  // freed allocations that are remembered, and stay inaccessible

struct Allocation {
  size_t bytes = 0;
  int device = 0;
  bool reached = true;         // false until the stream has reached a pool's allocation
  bool freed = false;          // BeginFree() was called
  bool gone = false;           // FinishFree() or a reset has freed the memory
  std::shared_ptr<Pool> pool;  // null for memory of cudaMalloc()
  char* mapping = nullptr;     // includes both inaccessible pages
  size_t mapping_bytes = 0;

  bool IsAccessibleFrom(int other) const {
    return pool != nullptr ? pool->IsAccessibleFrom(other) : device == other;
  }
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
  const auto* padding = static_cast<const char*>(ToBacking(data + bytes));
  for (size_t i = 0; i < PaddingBytes(bytes); ++i) {
    if (static_cast<unsigned char>(padding[i]) == kPattern) continue;
    Report(absl::StrCat("device work wrote past the end of an allocation of ", bytes, " bytes"));
    std::abort();
  }
}

// Sets the allocation's mapping, and returns the start of the memory. Returns null if the host is
// out of memory or addresses.
char* Map(size_t bytes, Allocation* allocation) {
  const size_t rounded = RoundUp(std::max<size_t>(bytes, 1), kAlignment);
  const size_t accessible = RoundUp(rounded, PageBytes());
  allocation->mapping_bytes = accessible + 2 * PageBytes();
  allocation->mapping = ReserveAddresses(allocation->mapping_bytes);
  if (allocation->mapping == nullptr) return nullptr;
  char* first_page = allocation->mapping + PageBytes();
  if (!MakeAccessible(first_page, accessible)) {
    ReleaseAddresses(allocation->mapping, allocation->mapping_bytes);
    return nullptr;
  }
  return first_page + (accessible - rounded);
}

cudaError_t Add(void** out, Allocation allocation) {
  char* data = Map(allocation.bytes, &allocation);
  if (data == nullptr) return cudaErrorMemoryAllocation;
  std::memset(ToBacking(data + allocation.bytes), kPattern, PaddingBytes(allocation.bytes));
  Table& table = TheTable();
  MutexLock lock(&table.mu);
  table.allocations[data] = std::move(allocation);
  *out = data;
  return cudaSuccess;
}

// Makes the memory inaccessible, and marks the allocation as freed. If there are now more than
// kMaxFreed freed allocations, forgets the oldest.
void Free(const char* data, Allocation* allocation, Table* table)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(table->mu) {
  CheckPadding(data, allocation->bytes);
  allocation->freed = allocation->gone = true;
  MakeInaccessible(allocation->mapping, allocation->mapping_bytes);
  if (allocation->pool != nullptr) {
    allocation->pool->Release(allocation->bytes);
    allocation->pool = nullptr;
  } else {
    ReleaseDeviceMemory(allocation->device, allocation->bytes);
  }
  table->freed.push_back(data);
  if (table->freed.size() <= kMaxFreed) return;
  const auto oldest = table->allocations.find(table->freed.front());
  table->freed.pop_front();
  ReleaseAddresses(oldest->second.mapping, oldest->second.mapping_bytes);
  table->allocations.erase(oldest);
}

cudaError_t Refuse(absl::string_view call, const void* data, absl::string_view why) {
  Report(absl::StrCat(call, ": 0x", absl::Hex(reinterpret_cast<uintptr_t>(data)), " ", why));
  return cudaErrorInvalidValue;
}

}  // namespace

cudaError_t AllocateOnDevice(void** out, size_t bytes, int device) {
  if (!AcquireDeviceMemory(device, bytes)) return cudaErrorMemoryAllocation;
  Allocation allocation;
  allocation.bytes = bytes;
  allocation.device = device;
  const cudaError_t error = Add(out, std::move(allocation));
  if (error != cudaSuccess) ReleaseDeviceMemory(device, bytes);
  return error;
}

cudaError_t AllocateFromPool(void** out, size_t bytes, const std::shared_ptr<Pool>& pool) {
  if (!pool->Acquire(bytes)) return cudaErrorMemoryAllocation;
  Allocation allocation;
  allocation.bytes = bytes;
  allocation.device = pool->device();
  allocation.pool = pool;
  allocation.reached = false;
  const cudaError_t error = Add(out, std::move(allocation));
  if (error != cudaSuccess) pool->Release(bytes);
  return error;
}

void FillWithPattern(void* backing, size_t bytes) {
  std::memset(backing, kPattern, std::min(bytes, kPatternBytes));
}

void ReachAllocation(void* data) {
  Table& table = TheTable();
  MutexLock lock(&table.mu);
  const auto it = table.allocations.find(static_cast<const char*>(data));
  if (it == table.allocations.end() || it->second.gone) return;
  it->second.reached = true;
  FillWithPattern(ToBacking(data), it->second.bytes);
}

cudaError_t BeginFree(void* data, absl::string_view call, int* device) {
  Table& table = TheTable();
  MutexLock lock(&table.mu);
  const auto it = table.allocations.find(static_cast<const char*>(data));
  if (it == table.allocations.end()) {
    return Refuse(call, data, "is not the start of an allocation on a device");
  }
  if (it->second.freed) return Refuse(call, data, "is freed already");
  it->second.freed = true;
  if (device != nullptr) *device = it->second.device;
  return cudaSuccess;
}

void ReachFree(void* data) {
  Table& table = TheTable();
  MutexLock lock(&table.mu);
  const auto it = table.allocations.find(static_cast<const char*>(data));
  if (it->second.gone || it->second.reached) return;
  Report("a stream reached a free before the allocation of the memory, which is in another stream");
}

void FinishFree(void* data) {
  Table& table = TheTable();
  MutexLock lock(&table.mu);
  const auto it = table.allocations.find(static_cast<const char*>(data));
  if (!it->second.gone) Free(it->first, &it->second, &table);
}

cudaError_t CheckMemory(const void* data, size_t bytes, Space space, absl::string_view call,
                        int device) {
  if (space == Space::kPinnedHost) return CheckPinned(data, bytes, call);
  Table& table = TheTable();
  MutexLock lock(&table.mu);
  const auto it = table.Find(data);
  if (it == table.allocations.end()) return Refuse(call, data, "is not in memory on a device");
  if (it->second.freed) return Refuse(call, data, "is in freed memory on a device");
  if (static_cast<const char*>(data) + bytes > it->first + it->second.bytes) {
    return Refuse(
        call, data,
        absl::StrCat("is the start of ", bytes, " bytes that go past an allocation's end"));
  }
  if (device != kAnyDevice && it->second.device != device) {
    return Refuse(call, data,
                  absl::StrCat("is on device ", it->second.device, ", not on device ", device));
  }
  return cudaSuccess;
}

bool IsAccessible(const void* data, int device) {
  Table& table = TheTable();
  MutexLock lock(&table.mu);
  const auto it = table.Find(data);
  if (it == table.allocations.end()) return true;
  return it->second.IsAccessibleFrom(device);
}

void* KernelAddress(const void* data, int device) {
  if (!IsDeviceAddress(data)) return const_cast<void*>(data);
  Table& table = TheTable();
  MutexLock lock(&table.mu);
  // A kernel may get a pointer to just before or just past the memory: into one of the two
  // inaccessible pages.
  auto it = table.allocations.upper_bound(static_cast<const char*>(data) + PageBytes());
  if (it == table.allocations.begin()) return const_cast<void*>(data);
  const Allocation& allocation = (--it)->second;
  const bool is_near =
      data >= allocation.mapping && data < allocation.mapping + allocation.mapping_bytes;
  return is_near && !allocation.freed && allocation.IsAccessibleFrom(device)
             ? ToBacking(data)
             : const_cast<void*>(data);
}

std::string DescribeAddress(const void* device_address) {
  Table& table = TheTable();
  MutexLock lock(&table.mu);
  const auto it = table.Find(device_address);
  if (it == table.allocations.end()) return "outside of all allocations";
  return absl::StrCat("in ", it->second.freed ? "freed " : "", "memory of device ",
                      it->second.device);
}

void ResetMemory(int device) {
  Table& table = TheTable();
  MutexLock lock(&table.mu);
  std::vector<const char*> lost;
  for (const auto& [data, allocation] : table.allocations) {
    if (allocation.device == device && allocation.pool == nullptr && !allocation.gone) {
      lost.push_back(data);
    }
  }
  for (const char* data : lost) {
    Free(data, &table.allocations.find(data)->second, &table);
  }
}

}  // namespace tensord::cuda_emulation
