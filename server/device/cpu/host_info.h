// The host's processor, and the memory that this process may use.
#pragma once

#include <cstdint>
#include <string>

namespace tensord::server::cpu {

// Returns the processor's name, such as "AMD EPYC 9654", or "CPU" if it is unknown.
std::string HostModel();

// Returns a hash of the machine's id. It doesn't change over restarts, and doesn't reveal the id.
std::string HostUuid();

// Returns the number of processors that this process may run on, at least 1.
int HostThreads();

// Returns how many threads this process may have: the smallest of its limit of processes, its
// control group's limit, and the system's limit. Other processes may use a part of it.
int64_t HostMaxThreads();

// Returns the smallest of the physical memory, the control group's limit, and the memory that the
// limit of address space allows (ulimit -v), in bytes. If the physical memory is unknown, returns
// 0. If `source` isn't null, sets it to the source of the result: "host", "control group" or "limit
// of address space (ulimit -v)".
int64_t HostTotalMemory(std::string* source = nullptr);

// Returns the bytes that this process could allocate now without swapping, within the control
// group's limit.
int64_t HostAvailableMemory();

// Returns the bytes of anonymous memory that this process has touched, in the physical memory or in
// the swap space. If they are unknown, returns a number larger than any memory.
int64_t HostTouchedMemory();

}  // namespace tensord::server::cpu
