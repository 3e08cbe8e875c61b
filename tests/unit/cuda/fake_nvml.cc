// A test double of libnvidia-ml.so.1 with one GPU. The environment says what it reports:
//   FAKE_NVML_INIT=FAIL     the library can't be initialized
//   FAKE_NVML_LISTS=SELF    the list of processes has the caller, with 2 GiB; otherwise only others
#include <unistd.h>

#include <cstdlib>
#include <cstring>

namespace {

constexpr char kUuid[] = "GPU-00000000-0000-0000-0000-000000000001";
constexpr unsigned long long kGiB = 1ull << 30;
constexpr unsigned kOthers = 20;  // more processes than a caller may expect

bool Is(const char* name, const char* value) {
  const char* found = getenv(name);
  return found != nullptr && strcmp(found, value) == 0;
}

struct Utilization {
  unsigned gpu, memory;
};
struct Memory {
  unsigned version;
  unsigned long long total, reserved, free, used;
};
struct Process {
  unsigned pid;
  unsigned long long used_memory;
  unsigned gpu_instance, compute_instance;
};

}  // namespace

extern "C" {

int nvmlInit_v2() { return Is("FAKE_NVML_INIT", "FAIL") ? 999 : 0; }

int nvmlDeviceGetHandleByUUID(const char* uuid, void** device) {
  static int gpu;
  if (strcmp(uuid, kUuid) != 0) return 6;  // NVML_ERROR_NOT_FOUND
  *device = &gpu;
  return 0;
}

int nvmlDeviceGetUtilizationRates(void*, Utilization* utilization) {
  *utilization = {37, 11};
  return 0;
}

int nvmlDeviceGetMemoryInfo_v2(void*, Memory* memory) {
  if (memory->version != (sizeof(Memory) | 2u << 24)) return 25;  // ..._ARGUMENT_VERSION_MISMATCH
  memory->used = 10 * kGiB;
  return 0;
}

int nvmlDeviceGetComputeRunningProcesses_v3(void*, unsigned* count, Process* processes) {
  const bool lists_self = Is("FAKE_NVML_LISTS", "SELF");
  const unsigned room = *count;
  *count = kOthers + (lists_self ? 1 : 0);
  if (room < *count) return 7;  // NVML_ERROR_INSUFFICIENT_SIZE
  for (unsigned i = 0; i < kOthers; ++i) processes[i] = {1, kGiB / 4, ~0u, ~0u};
  if (lists_self) processes[kOthers] = {static_cast<unsigned>(getpid()), 2 * kGiB, ~0u, ~0u};
  return 0;
}

}  // extern "C"
