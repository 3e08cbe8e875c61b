// Calls the standard gRPC health service, without a session.
#pragma once

#include <string>

#include "absl/time/time.h"
#include "tensord/client/client.h"

namespace tensord::cli {

enum class Health {
  kServing,
  kNotServing,
  kUnknownService,  // the server answers, but doesn't know the name
  // The server doesn't accept the credentials, a file of the credentials can't be read, or the
  // token must not be sent to the server.
  kRefused,
  kUnreachable,
};

struct HealthAnswer {
  Health health = Health::kUnreachable;
  std::string reason;  // if refused or unreachable
};

// Asks for the health of `service`, a device's name, or of the whole server if it is empty. Makes a
// connection of its own. Blocks for at most `timeout`.
HealthAnswer CheckHealth(const std::string& address, const ConnectOptions& options,
                         const std::string& service, absl::Duration timeout);

}  // namespace tensord::cli
