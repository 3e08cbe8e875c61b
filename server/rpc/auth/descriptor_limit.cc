#include "tensord/server/rpc/auth/descriptor_limit.h"

#include <sys/eventfd.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace tensord::server {
namespace {

// Descriptors that are reserved for uses other than connections.
constexpr int64_t kReservedDescriptors = 64;
// With fewer descriptors for connections, the server doesn't start.
constexpr int64_t kMinForConnections = 16 * kDescriptorsPerConnection;
// An estimate of the descriptors that a server without GPUs opens at its start.
constexpr int64_t kOwnDescriptors = 32;
// The limit that error messages suggest.
constexpr int64_t kSuggestedLimit = 1024;

int64_t Limit() {
  rlimit limit = {};
  getrlimit(RLIMIT_NOFILE, &limit);
  constexpr rlim_t kUnlimited = 1 << 30;
  return static_cast<int64_t>(std::min(limit.rlim_cur, kUnlimited));
}

// Returns FAILED_PRECONDITION if the limit is less than `open`, the reserved descriptors and those
// of a few connections together.
absl::Status CheckLimit(int64_t open) {
  const int64_t needed = open + kReservedDescriptors + kMinForConnections;
  if (Limit() >= needed) return absl::OkStatus();
  const int64_t suggested = std::max(kSuggestedLimit, 2 * needed);
  return absl::FailedPreconditionError(absl::StrCat(
      "the server needs at least ", needed,
      " file descriptors, but the hard limit of this process is ", Limit(),
      ": raise it where the server is started, by \"ulimit -n ", suggested,
      "\" in a shell, for example, or by nofile (LimitNOFILE) of its container or service"));
}

// Returns the lowest free descriptor number, which the kernel assigns next. If no number is free,
// returns the limit.
int64_t LowestFree() {
  const int lowest = eventfd(0, EFD_CLOEXEC);
  if (lowest < 0) return Limit();
  close(lowest);
  return lowest;
}

}  // namespace

absl::Status RaiseDescriptorLimit() {
  rlimit limit = {};
  getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
  return CheckLimit(kOwnDescriptors);
}

absl::Status CheckDescriptorsForConnections() { return CheckLimit(LowestFree()); }

int64_t DescriptorsForConnections() { return Limit() - kReservedDescriptors - LowestFree(); }

}  // namespace tensord::server
