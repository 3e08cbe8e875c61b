// Addresses of servers.
#pragma once

#include "absl/strings/string_view.h"

namespace tensord {

// Returns whether "HOST:PORT" or "unix:PATH" can be reached only from this machine.
bool IsLocalAddress(absl::string_view address);

}  // namespace tensord
