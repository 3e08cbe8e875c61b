// Options of a connection by name, for languages other than C++, and its default addresses.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "tensord/client/client.h"

namespace tensord::internal {

// Sets the field of ConnectOptions, or of its TlsOptions, that `name` names, to the value in
// `text`: "lease" to "30" (seconds), "tls" to "true", "token_file" to a path. If there is no such
// option, returns NOT_FOUND. If the text isn't of the option's type, returns INVALID_ARGUMENT.
absl::Status SetConnectOption(absl::string_view name, absl::string_view text,
                              ConnectOptions* options);

// Returns the value of TENSORD_SERVERS in the environment, or else that of TENSORD_SERVER, or else "".
std::string AddressesFromEnvironment();

}  // namespace tensord::internal
