#include "tensord/client/cli/health_probe.h"

#include <grpcpp/client_context.h>
#include <grpcpp/create_channel.h>

#include "absl/strings/str_cat.h"
#include "grpc/health/v1/health.grpc.pb.h"
#include "tensord/client/cli/text.h"
#include "tensord/client/internal/connect_failure.h"
#include "tensord/client/internal/credentials.h"

namespace tensord::cli {
namespace {

namespace health_v1 = grpc::health::v1;

}  // namespace

HealthAnswer CheckHealth(const std::string& address, const ConnectOptions& options,
                         const std::string& service, absl::Duration timeout) {
  const auto credentials = internal::Credentials::Load(address, options);
  if (!credentials.ok()) {
    return {Health::kRefused, std::string(credentials.status().message())};
  }
  // Without this, the channel would share the reconnect backoff of an earlier channel.
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  credentials->AddTo(&arguments);
  const auto channel = grpc::CreateCustomChannel(address, credentials->channel(), arguments);
  const auto stub = health_v1::Health::NewStub(channel);
  grpc::ClientContext call;
  credentials->AddTo(&call);
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
    case grpc::StatusCode::UNAUTHENTICATED:
      return {Health::kRefused, absl::StrCat(Printable(status.error_message()),
                                             "; give tensorctl a token with --token-file FILE")};
    case grpc::StatusCode::DEADLINE_EXCEEDED:
      return {Health::kUnreachable, absl::StrCat("no answer within ", FormatElapsed(timeout))};
    case grpc::StatusCode::UNIMPLEMENTED:
      return {Health::kUnreachable, "the server at this address has no health service"};
    default:
      return {Health::kUnreachable, ConnectionFailure(internal::DescribeConnectFailure(
                                        status.error_message(), credentials->uses_tls()))};
  }
}

}  // namespace tensord::cli
