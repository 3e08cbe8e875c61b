// A client of the health service's Watch method, by the generated stub.
#pragma once

#include <grpcpp/client_context.h>
#include <grpcpp/create_channel.h>

#include <chrono>
#include <memory>
#include <string>

#include "grpc/health/v1/health.grpc.pb.h"

namespace tensord::integration {

namespace health_v1 = grpc::health::v1;

// A Watch call with a deadline of ten minutes, the default time limit of a test.
class Watch {
 public:
  Watch(const std::string& address, const std::string& service)
      : stub_(health_v1::Health::NewStub(
            grpc::CreateChannel(address, grpc::InsecureChannelCredentials()))) {
    context_.set_deadline(std::chrono::system_clock::now() + std::chrono::minutes(10));
    health_v1::HealthCheckRequest request;
    request.set_service(service);
    reader_ = stub_->Watch(&context_, request);
  }
  ~Watch() { context_.TryCancel(); }

  // Blocks until the service sends a status and returns it. If the call has ended, returns UNKNOWN.
  health_v1::HealthCheckResponse::ServingStatus Next() {
    health_v1::HealthCheckResponse response;
    return reader_->Read(&response) ? response.status() : health_v1::HealthCheckResponse::UNKNOWN;
  }
  grpc::Status End() { return reader_->Finish(); }

 private:
  const std::unique_ptr<health_v1::Health::Stub> stub_;
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReader<health_v1::HealthCheckResponse>> reader_;
};

}  // namespace tensord::integration
