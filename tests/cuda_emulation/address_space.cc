#include "tensord/tests/cuda_emulation/address_space.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <map>

#include "tensord/common/util/mutex.h"

namespace tensord::cuda_emulation {
namespace {

// The size of each reserved address range. It takes no physical memory. It is large enough for the
// memory of all devices and for the freed allocations that memory.cc remembers.
constexpr size_t kSpaceBytes = size_t{128} << 30;
constexpr int kReserveFlags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;

struct ReservedRanges {
  char* devices;  // device addresses
  char* backing;
};

char* ReserveSpace() {
  void* space = mmap(nullptr, kSpaceBytes, PROT_NONE, kReserveFlags, -1, 0);
  if (space == MAP_FAILED) {
    std::perror("cuda emulation: no address space for device memory");
    std::abort();
  }
  return static_cast<char*>(space);
}

// Initialized before main(), so that signal handlers can use it.
const ReservedRanges the_ranges = {ReserveSpace(), ReserveSpace()};

bool IsIn(const char* space, const void* address) {
  const auto* at = static_cast<const char*>(address);
  return at >= space && at < space + kSpaceBytes;
}

// The ranges that ReserveAddresses() can return: offset and size. Adjacent ranges are merged.
struct FreeRanges {
  Mutex mu;
  std::map<size_t, size_t> ranges ABSL_GUARDED_BY(mu) = {{0, kSpaceBytes}};
};

FreeRanges& TheFreeRanges() {
  static auto* ranges = new FreeRanges;  // never destroyed
  return *ranges;
}

}  // namespace

size_t PageBytes() {
  static const auto bytes = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  return bytes;
}

bool IsDeviceAddress(const void* address) { return IsIn(the_ranges.devices, address); }
bool IsBackingAddress(const void* address) { return IsIn(the_ranges.backing, address); }

void* ToBacking(const void* device_address) {
  char* at = static_cast<char*>(const_cast<void*>(device_address));
  return IsDeviceAddress(at) ? the_ranges.backing + (at - the_ranges.devices) : at;
}

void* ToDeviceAddress(const void* backing) {
  char* at = static_cast<char*>(const_cast<void*>(backing));
  return IsBackingAddress(at) ? the_ranges.devices + (at - the_ranges.backing) : at;
}

char* ReserveAddresses(size_t bytes) {
  FreeRanges& free = TheFreeRanges();
  MutexLock lock(&free.mu);
  for (auto it = free.ranges.begin(); it != free.ranges.end(); ++it) {
    const auto [offset, size] = *it;
    if (size < bytes) continue;
    free.ranges.erase(it);
    if (size > bytes) free.ranges[offset + bytes] = size - bytes;
    return the_ranges.devices + offset;
  }
  return nullptr;
}

void ReleaseAddresses(char* device_address, size_t bytes) {
  auto offset = static_cast<size_t>(device_address - the_ranges.devices);
  FreeRanges& free = TheFreeRanges();
  MutexLock lock(&free.mu);
  auto next = free.ranges.lower_bound(offset);
  if (next != free.ranges.end() && next->first == offset + bytes) {
    bytes += next->second;
    next = free.ranges.erase(next);
  }
  if (next != free.ranges.begin()) {
    const auto previous = std::prev(next);
    if (previous->first + previous->second == offset) {
      previous->second += bytes;
      return;
    }
  }
  free.ranges[offset] = bytes;
}

bool MakeAccessible(char* device_address, size_t bytes) {
  return mprotect(ToBacking(device_address), bytes, PROT_READ | PROT_WRITE) == 0;
}

void MakeInaccessible(char* device_address, size_t bytes) {
  // Replaces the mapping by a new one that is inaccessible and has no pages.
  if (mmap(ToBacking(device_address), bytes, PROT_NONE, kReserveFlags | MAP_FIXED, -1, 0) ==
      MAP_FAILED) {
    std::perror("cuda emulation: memory can't be made inaccessible");
    std::abort();
  }
}

}  // namespace tensord::cuda_emulation
