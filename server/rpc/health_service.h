// The health service, grpc.health.v1.Health. gRPC's own implementation would add threads that poll
// every connection.
#pragma once

#include <grpcpp/grpcpp.h>

#include <map>
#include <memory>
#include <set>
#include <string>

#include "grpc/health/v1/health.grpc.pb.h"
#include "tensord/common/util/mutex.h"
#include "tensord/server/rpc/call_dispatcher.h"
#include "tensord/server/rpc/unary/unary_call.h"

namespace tensord::server {

// Thread-safe. Outlives the calls.
class HealthService {
 public:
  using Rpc = grpc::health::v1::Health;
  using ServingStatus = grpc::health::v1::HealthCheckResponse::ServingStatus;
  using CheckCall =
      UnaryCall<grpc::health::v1::HealthCheckRequest, grpc::health::v1::HealthCheckResponse>;

  // Calls of Watch join `streams`. When that group drains, each call sends the last status that was
  // set, and ends.
  explicit HealthService(CallGroup* streams) : streams_(streams) {}

  // These are the handlers.
  void Check(const std::shared_ptr<CheckCall>& call);
  CallFactory MakeWatchFactory();

  // Returns whether a request of Check is public: answered without credentials, because probes have
  // none. Requests about a service or a device aren't public.
  static bool IsPublic(const grpc::health::v1::HealthCheckRequest& request) {
    return request.service().empty();
  }

  // Sets the answer for the service of this name, and reports it to the calls that watch it.
  void Set(const std::string& service, bool serving);

 private:
  class Watch;

  // If no service has this name, returns SERVICE_UNKNOWN.
  ServingStatus StatusLocked(const std::string& service) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  CallGroup* const streams_;

  mutable Mutex mu_;
  std::map<std::string, bool> serving_ ABSL_GUARDED_BY(mu_);
  std::set<std::shared_ptr<Watch>> watches_ ABSL_GUARDED_BY(mu_);
};

}  // namespace tensord::server
