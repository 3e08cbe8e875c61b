// Converts between the protocol's messages and the library's types. Pure functions.
#pragma once

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "tensord/client/client.h"
#include "tensord/common/attributes.h"
#include "tensord/common/tensor_spec.h"
#include "tensord/v1/tensord.pb.h"

namespace grpc {
class Status;
}

namespace tensord::internal {

void SpecToProto(const TensorSpec& spec, v1::TensorSpec* proto);
// Converts a spec that the server sent. If it isn't valid, returns INTERNAL.
absl::StatusOr<TensorSpec> SpecFromProto(const v1::TensorSpec& proto);

void AttrToProto(const AttrValue& value, v1::AttrValue* proto);

absl::StatusOr<DeviceInfo> DeviceFromProto(const v1::Device& proto);
absl::StatusOr<TensorInfo> TensorFromProto(const v1::Tensor& proto);
ServerInfo ServerInfoFromProto(const v1::ServerInfo& proto);

// Converts the status of a call. If the call is UNAVAILABLE or CANCELLED, returns UNAVAILABLE with
// `address`. If the server was restarted, returns DATA_LOSS. Other errors are kept unchanged.
absl::Status StatusFromGrpc(const grpc::Status& status, absl::string_view address);

}  // namespace tensord::internal
