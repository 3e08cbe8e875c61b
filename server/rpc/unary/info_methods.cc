// The methods about the server, devices and ops.
#include <algorithm>

#include "tensord/common/ops/op_schema.h"
#include "tensord/server/rpc/chunk_codec.h"
#include "tensord/server/rpc/peer/peers.h"
#include "tensord/server/rpc/proto_convert.h"
#include "tensord/server/rpc/unary/unary_methods.h"

namespace tensord::server {
namespace {

constexpr uint32_t kProtocolVersion = 1;

// Returns the bytes that tensors hold on the logical devices of one physical device.
int64_t TensorBytes(const Engine& engine, const std::string& uuid) {
  int64_t bytes = 0;
  for (const DeviceSlot* slot : engine.slots()) {
    if (slot->device->info().uuid == uuid) bytes += slot->device->memory().used_bytes;
  }
  return bytes;
}

// This process holds at least `tensor_bytes`.
void AddHardwareUse(const HardwareUse& use, int64_t tensor_bytes, v1::Device* device) {
  if (use.utilization_percent) device->set_utilization_percent(*use.utilization_percent);
  if (!use.used_bytes) return;
  const int64_t own_bytes = use.own_bytes.value_or(tensor_bytes);
  device->set_memory_used_by_others_bytes(std::max<int64_t>(0, *use.used_bytes - own_bytes));
}

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
  response->add_features("dtypes-2");
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
  // A worker asks the drivers, which may take some milliseconds.
  context_->workers->Post(call->principal().get(), [this, call] {
    for (const DeviceSlot* slot : context_->engine->slots()) {
      v1::Device* device = call->response()->add_devices();
      ToProto(*slot->device, device);
      AddHardwareUse(slot->device->QueryHardwareUse(),
                     TensorBytes(*context_->engine, slot->device->info().uuid), device);
    }
    call->Finish(absl::OkStatus());
  });
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
