#include "tensord/client/internal/session_admin.h"

#include <grpcpp/client_context.h>

#include "absl/time/clock.h"
#include "tensord/client/internal/connect_failure.h"
#include "tensord/client/internal/create_channel.h"
#include "tensord/client/internal/credentials.h"
#include "tensord/client/internal/wire.h"
#include "tensord/common/util/status_macros.h"
#include "tensord/v1/tensord.grpc.pb.h"

namespace tensord::internal {
namespace {

constexpr int kPageSize = 1000;

SessionInfo FromProto(const v1::SessionInfo& proto) {
  SessionInfo session = {.number = proto.session_number(),
                         .principal = proto.principal(),
                         .client_name = proto.client_name(),
                         .age = absl::Seconds(proto.age_seconds()),
                         .in_use = proto.in_use(),
                         .idle = absl::Seconds(proto.idle_seconds()),
                         .lease = absl::Seconds(proto.lease_seconds()),
                         .handles = proto.handles(),
                         .ops_in_flight = proto.ops_in_flight()};
  for (const v1::SessionMemory& memory : proto.memory()) {
    session.memory.emplace_back(memory.device(), memory.used_bytes());
  }
  return session;
}

}  // namespace

struct SessionAdmin::Connection {
  std::string address;
  absl::Duration timeout;
  Credentials credentials;
  std::unique_ptr<v1::TensorService::Stub> stub;

  template <typename Method, typename Request, typename Response>
  absl::Status Call(Method method, const Request& request, Response* response) const {
    grpc::ClientContext call;
    credentials.AddTo(&call);
    call.set_deadline(absl::ToChronoTime(absl::Now() + timeout));
    const grpc::Status status = (stub.get()->*method)(&call, request, response);
    if (status.error_code() == grpc::StatusCode::UNAVAILABLE) {
      return StatusFromGrpc({status.error_code(), DescribeConnectFailure(status.error_message(),
                                                                         credentials.uses_tls())},
                            address);
    }
    return StatusFromGrpc(status, address);
  }
};

SessionAdmin::SessionAdmin(std::unique_ptr<Connection> connection)
    : connection_(std::move(connection)) {}

SessionAdmin::~SessionAdmin() = default;

absl::StatusOr<std::unique_ptr<SessionAdmin>> SessionAdmin::Connect(const std::string& address,
                                                                    const ConnectOptions& options) {
  auto connection = std::make_unique<Connection>();
  connection->address = address;
  connection->timeout = options.connect_timeout;
  TENSORD_ASSIGN_OR_RETURN(connection->credentials, Credentials::Load(address, options));
  grpc::ChannelArguments arguments;
  connection->credentials.AddTo(&arguments);
  connection->stub = v1::TensorService::NewStub(
      CreateChannel(address, connection->credentials.channel(), arguments));
  return std::unique_ptr<SessionAdmin>(new SessionAdmin(std::move(connection)));
}

absl::StatusOr<std::vector<SessionInfo>> SessionAdmin::List(const std::string& principal) const {
  std::vector<SessionInfo> sessions;
  v1::ListSessionsRequest request;
  request.set_page_size(kPageSize);
  request.set_principal(principal);
  do {
    v1::ListSessionsResponse page;
    TENSORD_RETURN_IF_ERROR(
        connection_->Call(&v1::TensorService::Stub::ListSessions, request, &page));
    for (const v1::SessionInfo& session : page.sessions()) sessions.push_back(FromProto(session));
    request.set_page_token(page.next_page_token());
  } while (!request.page_token().empty());
  return sessions;
}

absl::StatusOr<int64_t> SessionAdmin::Close(uint64_t number) const {
  v1::CloseSessionRequest request;
  request.set_session_number(number);
  v1::CloseSessionResponse response;
  TENSORD_RETURN_IF_ERROR(
      connection_->Call(&v1::TensorService::Stub::CloseSession, request, &response));
  return response.tensors_freed();
}

}  // namespace tensord::internal
