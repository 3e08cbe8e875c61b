// By which two processes see whether they may be on the same host.
#pragma once

#include <string>

namespace tensord {

// /proc/sys/kernel/random/boot_id; empty where there is none.
std::string BootId();

}  // namespace tensord
