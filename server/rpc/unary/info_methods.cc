// The methods about the server, devices and ops.
#include "tensord/common/ops/op_schema.h"
#include "tensord/server/rpc/chunk_codec.h"
#include "tensord/server/rpc/peer/peers.h"
#include "tensord/server/rpc/proto_convert.h"
#include "tensord/server/rpc/unary/unary_methods.h"

namespace tensord::server {
namespace {

constexpr uint32_t kProtocolVersion = 1;

}  // namespace

UnaryMethods::UnaryMethods(ServiceContext* context)
    : context_(context), started_(std::chrono::steady_clock::now()) {}

void UnaryMethods::GetServerInfo(const UnaryRef<v1::GetServerInfoRequest, v1::ServerInfo>& call) {
  v1::ServerInfo* response = call->response();
  response->set_version(TENSORD_VERSION);
  response->set_min_protocol_version(kProtocolVersion);
  response->set_max_protocol_version(kProtocolVersion);
  response->add_features("session-stream");
  response->add_features("bulk-streams");
  if (!context_->boot_id.empty()) response->add_features("shared-memory");
  if (context_->peers->any()) response->add_features("peer-copy");
  if (context_->collectives != nullptr) response->add_features("collectives");
  response->set_epoch(context_->sessions->epoch());
  response->set_max_message_bytes(context_->limits.max_message_bytes);
  response->set_host_name(context_->host_name);
  response->set_uptime_seconds(
      std::chrono::duration_cast<std::chrono::seconds>(std::chrono::steady_clock::now() - started_)
          .count());
  for (const UnavailableKind& unavailable : context_->unavailable_kinds) {
    v1::UnavailableDevices* devices = response->add_unavailable_devices();
    devices->set_kind(std::string(unavailable.kind.name()));
    devices->set_reason(unavailable.reason);
  }
  response->set_boot_id(context_->boot_id);
  response->set_peer_address(context_->peer_address);
  const Principal& caller = *call->principal();
  if (caller.kind() != Principal::Kind::kAnonymous) response->set_caller(caller.name());
  call->Finish(absl::OkStatus());
}

void UnaryMethods::ListDevices(
    const UnaryRef<v1::ListDevicesRequest, v1::ListDevicesResponse>& call) {
  for (const DeviceSlot* slot : context_->engine->slots()) {
    ToProto(*slot->device, call->response()->add_devices());
  }
  call->Finish(absl::OkStatus());
}

void UnaryMethods::ListOps(const UnaryRef<v1::ListOpsRequest, v1::ListOpsResponse>& call) {
  // All calls share the encoded response, so unread ones take no memory.
  static const auto* const response = [] {
    v1::ListOpsResponse ops;
    for (const OpSchema* schema : AllOps()) ToProto(*schema, ops.add_ops());
    return new grpc::ByteBuffer(EncodeMessage(ops));
  }();
  call->FinishWith(*response);
}

}  // namespace tensord::server
