// Asks the standard gRPC health service, without a session.
#pragma once

#include <memory>
#include <string>

#include "absl/time/time.h"

namespace grpc {
class Channel;
}

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

// For one thread.
class HealthProbe {
 public:
  // Connects with the first question.
  explicit HealthProbe(const std::string& address);
  ~HealthProbe();

  // `service`: a device's name, or empty for the server as a whole. Takes at most `timeout`.
  HealthAnswer Ask(const std::string& service, absl::Duration timeout);

 private:
  std::shared_ptr<grpc::Channel> channel_;
};

}  // namespace tensord::cli
