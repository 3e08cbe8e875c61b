// Converts between messages and the types of common/ and the engine.
#pragma once

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tensord/common/attributes.h"
#include "tensord/common/ops/op_schema.h"
#include "tensord/common/tensor_spec.h"
#include "tensord/server/collective/collectives.h"
#include "tensord/server/device/device.h"
#include "tensord/server/engine/engine.h"
#include "tensord/server/session/tensor.h"
#include "tensord/server/session/tickets.h"
#include "tensord/v1/tensord.pb.h"
#include "tensord/v1/types.pb.h"

namespace tensord::server {

// If the message has no valid spec, returns INVALID_ARGUMENT.
absl::StatusOr<TensorSpec> FromProto(const v1::TensorSpec& proto);
void ToProto(const TensorSpec& spec, v1::TensorSpec* proto);

// If an attribute has no value or an unknown dtype, both functions return INVALID_ARGUMENT, which
// names the attribute. If there are too many attributes, the first returns INVALID_ARGUMENT.
absl::StatusOr<Attributes> FromProto(
    const google::protobuf::Map<std::string, v1::AttrValue>& attrs);
absl::StatusOr<AttrValue> FromProto(const v1::AttrValue& proto, absl::string_view name);
void ToProto(const AttrValue& value, v1::AttrValue* proto);

// Returns a request whose views refer to `op`. Returns the errors of the attributes' FromProto().
absl::StatusOr<OpRequest> ToRequest(const v1::Op& op);

// If the kind, the reduction or the spec is invalid, returns INVALID_ARGUMENT. For a barrier,
// ignores all fields but the kind.
absl::StatusOr<CollectiveOp> FromProto(const v1::Collective& proto);

// Returns what a request about a ticket claims about its pull: FetchRequest or
// ReleaseTicketRequest. The claim refers to the request's strings.
template <typename Request>
Tickets::Claim ClaimOf(const Request& request) {
  return {.destination_epoch = request.destination_epoch(),
          .principal_kind = request.principal_kind(),
          .principal_name = request.principal_name(),
          .pull_id = request.pull_id()};
}

void ToProto(const Device& device, v1::Device* proto);
void ToProto(const OpSchema& schema, v1::OpInfo* proto);
void ToProto(const Tensor& tensor, v1::Tensor* proto);

}  // namespace tensord::server
