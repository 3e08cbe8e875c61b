// Runs collective operations for the unary method and for the stream's command.
#pragma once

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tensord/server/rpc/service_context.h"
#include "tensord/server/session/session.h"
#include "tensord/v1/tensord.pb.h"

namespace tensord::server {

// If this server takes no part in groups, returns FAILED_PRECONDITION with the reason.
absl::Status CheckCollectives(const ServiceContext& context);
// Starts a member's part of a collective operation, and returns the promised result.
absl::StatusOr<TensorRef> RunCollective(const ServiceContext& context, const SessionRef& session,
                                        const v1::Collective& collective);

}  // namespace tensord::server
