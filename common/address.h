// Where a server listens and where a client connects to.
#pragma once

#include "absl/strings/string_view.h"

namespace tensord {

// Whether "HOST:PORT" or "unix:PATH" can be reached from this machine alone.
bool IsLocalAddress(absl::string_view address);

}  // namespace tensord
