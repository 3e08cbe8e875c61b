// Converts statuses to and from gRPC's.
#pragma once

#include <grpcpp/support/status.h>

#include "absl/status/status.h"

namespace tensord::server {

// Returns a status with the same code, message and details (common/status_details.h). A message
// longer than 4 KiB is cut, because it may quote what a client sent.
grpc::Status ToGrpc(const absl::Status& status);

// Returns the status of a call to another server, with its code, message and details.
absl::Status FromGrpc(const grpc::Status& status);

// Returns the message as ToGrpc() sends it.
std::string WireMessage(const absl::Status& status);

// Returns the details as ToGrpc() sends them: an encoded google.rpc.Status. Empty if there are
// none, or if the message is longer than 1 KiB.
std::string WireDetails(const absl::Status& status);

}  // namespace tensord::server
