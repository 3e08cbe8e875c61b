// Divides the memory of the machine or container among what the daemon holds.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "tensord/server/session/limits.h"

namespace tensord::server {

// All sizes are in bytes. LIMITS.md ("Where the memory goes") shows the same arithmetic.
struct MemoryPlan {
  int64_t memory;         // what there is
  int64_t host;           // Limits::max_host_bytes
  int64_t requests;       // Limits::max_request_bytes
  int64_t responses;      // Limits::max_response_bytes
  int64_t rings;          // Limits::max_rings rings of shared memory
  int64_t prepared;       // Limits::max_prepared_bytes
  int64_t process;        // code, stacks, buffers of gRPC, and what malloc keeps
  int64_t fragmentation;  // unused parts of pages that hold tensors (BufferPages())
  int64_t spare;          // used by nothing
  int64_t devices;        // the limits of all CPU devices together: the rest

  // Returns what CPU devices may not use.
  int64_t reserved() const { return memory - devices; }
};

// Computes the plan for `memory`, and sets the limits that no flag has set (0). If `memory` is more
// than 512 MiB, and flags leave less than a quarter of it for CPU devices, returns
// INVALID_ARGUMENT.
absl::StatusOr<MemoryPlan> PlanMemory(int64_t memory, Limits* limits);

}  // namespace tensord::server
