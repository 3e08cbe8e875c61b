#include "tensord/client/internal/wire.h"

#include <grpcpp/support/status.h>

#include "absl/strings/str_cat.h"
#include "tensord/common/attribute_message.h"
#include "tensord/common/status_details.h"
#include "tensord/common/util/status_macros.h"

namespace tensord::internal {

void SpecToProto(const TensorSpec& spec, v1::TensorSpec* proto) {
  proto->set_dtype(static_cast<v1::DType>(spec.dtype));
  const absl::Span<const int64_t> dims = spec.shape.dims();
  proto->mutable_shape()->Assign(dims.begin(), dims.end());
}

absl::StatusOr<TensorSpec> SpecFromProto(const v1::TensorSpec& proto) {
  TensorSpec spec;
  if (proto.dtype() >= 0 && proto.dtype() <= 255) spec.dtype = static_cast<DType>(proto.dtype());
  spec.shape = Shape(absl::MakeConstSpan(proto.shape().data(), proto.shape_size()));
  const absl::Status valid = spec.Validate();
  if (!valid.ok()) {
    return absl::InternalError(absl::StrCat(
        "the server sent an invalid tensor spec: ", valid.message(), ", dtype ", proto.dtype()));
  }
  return spec;
}

namespace {

DeviceState StateFromProto(v1::DeviceState state) {
  switch (state) {
    case v1::DEVICE_STATE_SERVING:
      return DeviceState::kServing;
    case v1::DEVICE_STATE_LOST:
      return DeviceState::kLost;
    case v1::DEVICE_STATE_RESETTING:
      return DeviceState::kResetting;
    default:
      return DeviceState::kUnknown;
  }
}

}  // namespace

void AttrToProto(const AttrValue& value, v1::AttrValue* proto) { SetAttrMessage(value, proto); }

absl::StatusOr<DeviceInfo> DeviceFromProto(const v1::Device& proto) {
  DeviceInfo info;
  TENSORD_ASSIGN_OR_RETURN(info.name, ParseDeviceName(proto.name()));
  info.model = proto.model();
  info.uuid = proto.uuid();
  info.compute_capability = proto.compute_capability();
  info.threads = proto.threads();
  info.memory = {.total_bytes = proto.memory_total_bytes(),
                 .limit_bytes = proto.memory_limit_bytes(),
                 .used_bytes = proto.memory_used_bytes(),
                 .peak_bytes = proto.memory_peak_bytes()};
  info.state = StateFromProto(proto.state());
  info.state_reason = proto.state_reason();
  info.restarts = proto.restarts();
  if (proto.has_utilization_percent()) info.utilization_percent = proto.utilization_percent();
  if (proto.has_memory_used_by_others_bytes()) {
    info.others_bytes = proto.memory_used_by_others_bytes();
  }
  return info;
}

absl::StatusOr<TensorInfo> TensorFromProto(const v1::Tensor& proto) {
  TensorInfo info;
  info.handle = proto.handle();
  // A handle whose op failed inference has no spec.
  if (proto.spec().dtype() != v1::DTYPE_UNSPECIFIED) {
    TENSORD_ASSIGN_OR_RETURN(info.spec, SpecFromProto(proto.spec()));
  }
  info.device = proto.device();
  info.size_bytes = proto.size_bytes();
  info.session_number = proto.session_number();
  info.principal = proto.principal();
  info.status = StatusFromCode(proto.error_code(), proto.error_message());
  return info;
}

ServerInfo ServerInfoFromProto(const v1::ServerInfo& proto) {
  ServerInfo info;
  info.version = proto.version();
  info.min_protocol_version = static_cast<int>(proto.min_protocol_version());
  info.max_protocol_version = static_cast<int>(proto.max_protocol_version());
  info.features.assign(proto.features().begin(), proto.features().end());
  info.epoch = proto.epoch();
  info.max_message_bytes = proto.max_message_bytes();
  info.host_name = proto.host_name();
  info.peer_address = proto.peer_address();
  info.caller = proto.caller();
  info.uptime = absl::Seconds(proto.uptime_seconds());
  for (const v1::UnavailableDevices& devices : proto.unavailable_devices()) {
    info.unavailable_devices[devices.kind()] = devices.reason();
  }
  return info;
}

absl::Status StatusFromGrpc(const grpc::Status& status, absl::string_view address) {
  switch (status.error_code()) {
    case grpc::StatusCode::OK:
      return absl::OkStatus();
    case grpc::StatusCode::UNAVAILABLE:
    case grpc::StatusCode::CANCELLED:
      return absl::UnavailableError(
          absl::StrCat("tensord server at ", address, ": ", status.error_message()));
    default:
      break;
  }
  const absl::Status error =
      StatusFromCode(status.error_code(), status.error_message(), status.error_details());
  // Replaces the server's message, which is for callers of the RPCs.
  if (ErrorReason(error) != "SERVER_RESTARTED") return error;
  absl::Status restarted = absl::DataLossError(
      absl::StrCat("tensord server at ", address, " has been restarted (epoch ",
                   ErrorMetadataValue(error, "epoch"),
                   "), and the session and its tensors are lost; connect again"));
  DecodeDetails(status.error_details(), &restarted);
  return restarted;
}

}  // namespace tensord::internal
