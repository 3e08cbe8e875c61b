// grpc.health.v1.Health: gRPC's own implementation would bring threads that watch every connection.
#pragma once

#include <grpcpp/grpcpp.h>

#include <map>
#include <memory>
#include <set>
#include <string>

#include "grpc/health/v1/health.grpc.pb.h"
#include "tensord/common/mutex.h"
#include "tensord/server/rpc/call_queue.h"
#include "tensord/server/rpc/gated_service.h"
#include "tensord/server/rpc/unary_call.h"

namespace tensord::server {

// Thread-safe.
class HealthService {
 public:
  using ServingStatus = grpc::health::v1::HealthCheckResponse::ServingStatus;

  // Registers Watch with the server that is being built, and adds Check to `dispatcher`. This
  // object outlives the calls.
  HealthService(grpc::ServerBuilder* builder, UnaryDispatcher* dispatcher);

  // Makes `queue` wait for calls of Watch. Call it after the server has been built.
  void Await(CallQueue* queue);

  // What the service of this name answers from now on; watchers hear of it.
  void Set(const std::string& service, bool serving);

  // Ends the watches, which would otherwise stay for as long as their clients do, and refuses
  // others. They hear of what was set before.
  void EndWatches();

 private:
  class Watch;
  using Rpc = grpc::health::v1::Health;
  using CheckCall =
      UnaryCall<grpc::health::v1::HealthCheckRequest, grpc::health::v1::HealthCheckResponse>;

  void Check(const std::shared_ptr<CheckCall>& call);
  // SERVICE_UNKNOWN where there is none of this name.
  ServingStatus StatusLocked(const std::string& service) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  class WatchRpc final : public GatedService<Rpc::Service> {
   public:
    WatchRpc() : GatedService(Rpc::service_full_name(), "Watch") { MarkMethodAsync(index()); }
    void RequestWatch(grpc::ServerContext* context,
                      grpc::ServerAsyncReaderWriter<grpc::health::v1::HealthCheckResponse,
                                                    grpc::health::v1::HealthCheckRequest>* stream,
                      grpc::ServerCompletionQueue* queue, void* tag) {
      RequestStream(context, stream, queue, queue, tag);
    }
  };

  WatchRpc rpc_;

  mutable Mutex mu_;
  std::map<std::string, bool> serving_ ABSL_GUARDED_BY(mu_);
  std::set<std::shared_ptr<Watch>> watches_ ABSL_GUARDED_BY(mu_);
  bool ended_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace tensord::server
