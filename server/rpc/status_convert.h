// The one edge between our statuses and gRPC's.
#pragma once

#include <grpcpp/support/status.h>

#include "absl/status/status.h"

namespace tensord::server {

// Same code; a message longer than 4 KiB is cut, since it may quote what a client sent. Comes with
// the details that the status has (common/status_details.h).
grpc::Status ToGrpc(const absl::Status& status);

// The message as ToGrpc would send it.
std::string WireMessage(const absl::Status& status);

// The details as ToGrpc would send them: a google.rpc.Status, or nothing.
std::string WireDetails(const absl::Status& status);

}  // namespace tensord::server
