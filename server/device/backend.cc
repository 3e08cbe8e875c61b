#include "tensord/server/device/backend.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace tensord::server {

Backend UnavailableBackend(DeviceKind kind, std::string reason) {
  Backend backend;
  backend.kind = kind;
  backend.count = [reason](std::string* why) {
    *why = reason;
    return 0;
  };
  backend.physical_name = [kind](int index) { return absl::StrCat(kind.name(), " ", index); };
  backend.total_memory = [reason](int) { return absl::UnavailableError(reason); };
  backend.make = [reason](const DeviceOptions&) { return absl::UnavailableError(reason); };
  return backend;
}

std::vector<UnavailableKind> UnavailableKinds(absl::Span<const Backend> backends) {
  std::vector<UnavailableKind> unavailable;
  for (const Backend& backend : backends) {
    std::string reason;
    if (backend.count(&reason) == 0) unavailable.push_back({backend.kind, reason});
  }
  return unavailable;
}

}  // namespace tensord::server
