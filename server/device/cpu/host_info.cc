#include "tensord/server/device/cpu/host_info.h"

#include <sched.h>
#include <sys/resource.h>
#include <sys/sysinfo.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <thread>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"

namespace tensord::server::cpu {
namespace {

constexpr int64_t kUnlimited = std::numeric_limits<int64_t>::max();

std::string FirstLine(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// Returns the value of "key : value" or "key: value" in a file of /proc. If there is none, returns
// "".
std::string ProcValue(const char* path, absl::string_view key) {
  std::ifstream file(path);
  std::string line;
  while (std::getline(file, line)) {
    const std::pair<absl::string_view, absl::string_view> parts =
        absl::StrSplit(line, absl::MaxSplits(':', 1));
    if (absl::StripAsciiWhitespace(parts.first) == key) {
      return std::string(absl::StripAsciiWhitespace(parts.second));
    }
  }
  return "";
}

// Returns such a value that is a number of KiB, in bytes. If it is unknown, returns kUnlimited.
int64_t ProcBytes(const char* path, absl::string_view key) {
  const std::string text = ProcValue(path, key);
  int64_t kib = 0;
  const bool known = absl::SimpleAtoi(absl::StripSuffix(text, " kB"), &kib);
  return known ? kib * 1024 : kUnlimited;
}

// Returns the number in a file. "max" (version 2 of control groups) gives kUnlimited. Version 1 has
// a huge number instead.
int64_t NumberIn(const std::string& path) {
  int64_t number = 0;
  return absl::SimpleAtoi(FirstLine(path), &number) ? number : kUnlimited;
}

// The names of a controller's files. Version 1 is "4:memory:/path" in /proc/self/cgroup, version 2
// is "0::/path".
struct Controller {
  const char* name;  // in version 1
  const char* limit_file_v1;
  const char* used_file_v1;
  const char* limit_file;
  const char* used_file;
};
constexpr Controller kMemory = {"memory", "memory.limit_in_bytes", "memory.usage_in_bytes",
                                "memory.max", "memory.current"};
constexpr Controller kPids = {"pids", "pids.max", "pids.current", "pids.max", "pids.current"};

struct GroupLimit {
  int64_t limit = kUnlimited;
  int64_t free = kUnlimited;
};

// Reduces `smallest` to the smallest of the limits from a control group up to the root.
void Reduce(const std::string& root, std::string path, const char* limit_file,
            const char* used_file, GroupLimit* smallest) {
  while (true) {
    const std::string folder = absl::StrCat(root, path == "/" ? "" : path, "/");
    const int64_t limit = NumberIn(folder + limit_file);
    if (limit != kUnlimited) {
      const int64_t used = NumberIn(folder + used_file);
      smallest->limit = std::min(smallest->limit, limit);
      if (used != kUnlimited) {
        smallest->free = std::min(smallest->free, std::max<int64_t>(0, limit - used));
      }
    }
    if (path.empty() || path == "/") return;
    path.resize(path.rfind('/'));
  }
}

// Returns the smallest limit of the process's control groups.
GroupLimit ControlGroupLimit(const Controller& controller) {
  std::ifstream file("/proc/self/cgroup");
  std::string line;
  GroupLimit limit;
  while (std::getline(file, line)) {
    const std::vector<std::string> parts = absl::StrSplit(line, absl::MaxSplits(':', 2));
    if (parts.size() != 3 || !absl::StartsWith(parts[2], "/")) continue;
    if (parts[0] == "0" && parts[1].empty()) {
      Reduce("/sys/fs/cgroup", parts[2], controller.limit_file, controller.used_file, &limit);
    } else if (parts[1] == controller.name) {
      Reduce(absl::StrCat("/sys/fs/cgroup/", controller.name), parts[2], controller.limit_file_v1,
             controller.used_file_v1, &limit);
    }
  }
  return limit;
}

// FNV-1a, 64 bits.
uint64_t Hash(absl::string_view text, uint64_t seed) {
  uint64_t hash = 0xcbf29ce484222325 ^ seed;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return hash ^ (hash >> 32);
}

}  // namespace

std::string HostModel() {
  for (const char* key : {"model name", "Model", "Hardware", "cpu model"}) {
    std::string model = ProcValue("/proc/cpuinfo", key);
    if (!model.empty()) return model;
  }
  return "CPU";
}

std::string HostUuid() {
  std::string id = FirstLine("/etc/machine-id");
  if (id.empty()) id = FirstLine("/var/lib/dbus/machine-id");
  if (id.empty()) id = FirstLine("/proc/sys/kernel/hostname");
  const std::string salted = absl::StrCat("tensord cpu device ", id);
  const uint64_t high = Hash(salted, 0), low = Hash(salted, 0x9e3779b97f4a7c15);
  return absl::StrFormat("CPU-%08x-%04x-%04x-%04x-%012x", high >> 32, (high >> 16) & 0xffff,
                         high & 0xffff, low >> 48, low & 0xffffffffffff);
}

int HostThreads() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof(set), &set) == 0) return std::max(1, CPU_COUNT(&set));
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

int64_t HostMaxThreads() {
  rlimit limit = {};
  const bool limited =
      getrlimit(RLIMIT_NPROC, &limit) == 0 && limit.rlim_cur < static_cast<rlim_t>(kUnlimited);
  return std::min({limited ? static_cast<int64_t>(limit.rlim_cur) : kUnlimited,
                   ControlGroupLimit(kPids).limit, NumberIn("/proc/sys/kernel/threads-max")});
}

namespace {

// Returns how much memory the limit of address space (RLIMIT_AS, `ulimit -v`) allows. Subtracts
// 384 MiB for the stacks of threads, which reserve much more address space than they use. If there
// is no limit, returns kUnlimited.
int64_t UsableAddressSpace() {
  constexpr int64_t kForThreads = 384 << 20;
  rlimit limit = {};
  const bool limited =
      getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur < static_cast<rlim_t>(kUnlimited);
  if (!limited) return kUnlimited;
  const int64_t used = ProcBytes("/proc/self/status", "VmSize");
  return std::max<int64_t>(1, static_cast<int64_t>(limit.rlim_cur) - used - kForThreads);
}

}  // namespace

int64_t HostTotalMemory(std::string* source) {
  // At the first call, few threads run and no tensor exists.
  static const int64_t address_space = UsableAddressSpace();
  struct sysinfo info = {};
  if (sysinfo(&info) != 0) return 0;
  const int64_t physical = static_cast<int64_t>(info.totalram) * info.mem_unit;
  const int64_t group = ControlGroupLimit(kMemory).limit;
  if (source != nullptr) {
    *source = address_space < std::min(physical, group) ? "limit of address space (ulimit -v)"
              : group < physical                        ? "control group"
                                                        : "host";
  }
  return std::min({physical, group, address_space});
}

int64_t HostAvailableMemory() {
  return std::min(ProcBytes("/proc/meminfo", "MemAvailable"), ControlGroupLimit(kMemory).free);
}

int64_t HostTouchedMemory() {
  const int64_t resident = ProcBytes("/proc/self/status", "RssAnon");
  const int64_t swapped = ProcBytes("/proc/self/status", "VmSwap");
  return resident == kUnlimited || swapped == kUnlimited ? kUnlimited : resident + swapped;
}

}  // namespace tensord::server::cpu
