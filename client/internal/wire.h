// Conversion between the protocol's messages and the library's types. Pure functions.
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
// INTERNAL if the spec, which the server sent, isn't valid.
absl::StatusOr<TensorSpec> SpecFromProto(const v1::TensorSpec& proto);

void AttrToProto(const AttrValue& value, v1::AttrValue* proto);

absl::StatusOr<DeviceInfo> DeviceFromProto(const v1::Device& proto);
absl::StatusOr<TensorInfo> TensorFromProto(const v1::Tensor& proto);
ServerInfo ServerInfoFromProto(const v1::ServerInfo& proto);

// Converts the status of a call. If the server couldn't be reached, returns UNAVAILABLE with
// `address`. What the server itself reported is kept unchanged.
absl::Status StatusFromGrpc(const grpc::Status& status, absl::string_view address);

// Converts an error inside a message: a google.rpc.Code, its text, and details (a google.rpc.Status
// or nothing), which become payloads. If `code` is no google.rpc.Code, returns UNKNOWN.
absl::Status StatusFromCode(int code, absl::string_view message, absl::string_view details = "");

}  // namespace tensord::internal
