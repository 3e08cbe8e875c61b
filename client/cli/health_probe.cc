#include "tensord/client/cli/health_probe.h"

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>
#include <grpcpp/create_channel.h>

#include "absl/strings/str_cat.h"
#include "grpc/health/v1/health.grpc.pb.h"
#include "tensord/client/cli/text.h"

namespace tensord::cli {
namespace {

namespace health_v1 = grpc::health::v1;

std::shared_ptr<grpc::Channel> MakeChannel(const std::string& address) {
  grpc::ChannelArguments arguments;
  // A server that has just started is to be found at once, not after gRPC's own, growing pauses.
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 100);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 500);
  return grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments);
}

}  // namespace

HealthProbe::HealthProbe(const std::string& address) : channel_(MakeChannel(address)) {}

HealthProbe::~HealthProbe() = default;

HealthAnswer HealthProbe::Ask(const std::string& service, absl::Duration timeout) {
  const auto stub = health_v1::Health::NewStub(channel_);
  grpc::ClientContext call;
  call.set_deadline(absl::ToChronoTime(absl::Now() + timeout));
  health_v1::HealthCheckRequest request;
  request.set_service(service);
  health_v1::HealthCheckResponse response;
  const grpc::Status status = stub->Check(&call, request, &response);
  if (status.ok()) {
    return {response.status() == health_v1::HealthCheckResponse::SERVING ? Health::kServing
                                                                         : Health::kNotServing,
            ""};
  }
  switch (status.error_code()) {
    case grpc::StatusCode::NOT_FOUND:
      return {Health::kUnknownService, ""};
    case grpc::StatusCode::DEADLINE_EXCEEDED:
      return {Health::kUnreachable, absl::StrCat("no answer within ", FormatElapsed(timeout))};
    case grpc::StatusCode::UNIMPLEMENTED:
      return {Health::kUnreachable, "what answers there has no health service"};
    default:
      return {Health::kUnreachable, Printable(status.error_message())};
  }
}

}  // namespace tensord::cli
