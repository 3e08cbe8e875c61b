// Identifies a boot of a host: two processes with the same id are on the same host.
#pragma once

#include <string>

namespace tensord {

// Returns /proc/sys/kernel/random/boot_id. If there is none, returns "".
std::string BootId();

}  // namespace tensord
