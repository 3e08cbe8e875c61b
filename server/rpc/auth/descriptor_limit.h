// The process's limit of file descriptors, and how much of it connections may use.
#pragma once

#include <cstdint>

#include "absl/status/status.h"

namespace tensord::server {

inline constexpr int64_t kDescriptorsPerConnection = 2;

// Raises the process's limit to the maximum that the system allows. If that is too low to serve a
// few connections, returns FAILED_PRECONDITION that names the number that the server needs. Call it
// before the server opens anything: libraries don't report a lack of descriptors clearly.
absl::Status RaiseDescriptorLimit();

// Makes the same check, by the number of descriptors that are open. Call it when the server has
// opened everything that it needs to serve.
absl::Status CheckDescriptorsForConnections();

// Returns how many descriptors connections may still use. Some are reserved for other uses. May be
// negative.
int64_t DescriptorsForConnections();

}  // namespace tensord::server
