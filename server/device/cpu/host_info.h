// What the host is and how much memory it lets this process have.
#pragma once

#include <cstdint>
#include <string>

namespace tensord::server::cpu {

// "AMD EPYC 9654"; "CPU" where the system doesn't tell.
std::string HostModel();

// Stable over restarts, and says nothing that identifies the machine elsewhere: a hash of its id.
std::string HostUuid();

// Processors that this process may run on, at least 1.
int HostThreads();

// Physical memory in bytes, or the control group's limit where that is lower.
int64_t HostTotalMemory();

// How much of it could be had now without swapping, within the control group's limit.
int64_t HostAvailableMemory();

}  // namespace tensord::server::cpu
