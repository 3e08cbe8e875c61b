// Classifies a failed call of the handshake by gRPC's message.
#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace tensord::internal {

enum class ConnectFailure {
  // The connection was made. Then it broke, or the server answered with an error.
  kBroken,
  // No connection could be made. The server may come up, or the network may recover.
  kUnreachable,
  // No connection could be made, and another attempt gives the same result: no program listens at
  // the address, or a certificate isn't accepted.
  kFinal,
  // The name of the host can't be resolved.
  kUnresolved,
  // TCP connects, but the other end closes the connection, or doesn't use HTTP/2.
  kClosed,
};

ConnectFailure ClassifyConnectFailure(absl::string_view message);

// Returns a sentence that says what to check. If the cause isn't known, returns `message`.
// `uses_tls` says whether the client tried TLS.
std::string DescribeConnectFailure(absl::string_view message, bool uses_tls);

// If the environment names a proxy for `address`, returns a clause that names the variable, and how
// to connect without the proxy. Otherwise returns an empty text. gRPC reads the same variables.
std::string DescribeProxy(absl::string_view address);

}  // namespace tensord::internal
