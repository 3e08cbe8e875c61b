// Asks the standard gRPC health service, without a session.
#pragma once

#include <string>

#include "absl/time/time.h"
#include "tensord/client/client.h"

namespace tensord::cli {

enum class Health {
  kServing,
  kNotServing,
  kUnknownService,  // the server is there and doesn't know the name
  kRefused,         // it doesn't tell us, or we don't trust it with our token
  kUnreachable,
};

struct HealthAnswer {
  Health health = Health::kUnreachable;
  std::string reason;  // where refused or unreachable
};

// `service`: a device's name, or empty for the server as a whole. Connects anew, and takes at most
// `timeout` in all.
HealthAnswer AskHealth(const std::string& address, const ConnectOptions& options,
                       const std::string& service, absl::Duration timeout);

}  // namespace tensord::cli
