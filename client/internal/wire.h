// Between the protocol's messages and the library's own types.
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
// INTERNAL where the server sent one that isn't valid.
absl::StatusOr<TensorSpec> SpecFromProto(const v1::TensorSpec& proto);

void AttrToProto(const AttrValue& value, v1::AttrValue* proto);

absl::StatusOr<DeviceInfo> DeviceFromProto(const v1::Device& proto);
absl::StatusOr<TensorInfo> TensorFromProto(const v1::Tensor& proto);
ServerInfo ServerInfoFromProto(const v1::ServerInfo& proto);

// The outcome of a call. What says that the server can't be reached becomes UNAVAILABLE naming
// `address`; what the server itself said is kept word for word.
absl::Status StatusFromGrpc(const grpc::Status& status, absl::string_view address);

// An error as it travels inside a message: a google.rpc.Code, its text, and what else the server
// says of it (a google.rpc.Status, or nothing), which is put into the status' payloads. UNKNOWN for
// a code that isn't one.
absl::Status StatusFromCode(int code, absl::string_view message, absl::string_view details = "");

}  // namespace tensord::internal
