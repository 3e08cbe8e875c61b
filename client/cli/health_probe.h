// Asks the standard gRPC health service, without a session.
#pragma once

#include <string>

#include "absl/time/time.h"

namespace tensord::cli {

enum class Health {
  kServing,
  kNotServing,
  kUnknownService,  // the server is there and doesn't know the name
  kUnreachable,
};

struct HealthAnswer {
  Health health = Health::kUnreachable;
  std::string reason;  // where unreachable
};

// `service`: a device's name, or empty for the server as a whole. Connects anew, and takes at most
// `timeout` in all.
HealthAnswer AskHealth(const std::string& address, const std::string& service,
                       absl::Duration timeout);

}  // namespace tensord::cli
