// The limits of the server, and their defaults. If the token file sets a limit for a caller
// (principal_limits.h), that limit replaces the one per principal. Unless a limit's comment or
// server/README.md says otherwise, a request that exceeds it fails with RESOURCE_EXHAUSTED or
// INVALID_ARGUMENT. The message names the limit.
#pragma once

#include <cstdint>

namespace tensord::server {

struct Limits {
  int64_t max_message_bytes = 16 << 20;  // one gRPC message
  int64_t max_host_bytes = 0;  // of host memory (PrincipalTable::host_budget()); 0: no limit
  int64_t max_host_bytes_per_principal = 0;  // of host memory, over all sessions; 0: no limit
  // Bytes of requests that have arrived in part or wait, and of responses that clients haven't
  // received: of all callers, and of each one. 0: no limit
  int64_t max_request_bytes = 0;
  int64_t max_request_bytes_per_principal = 0;
  int64_t max_response_bytes = 0;
  int64_t max_response_bytes_per_principal = 0;
  int64_t max_rings = 32;                         // of shared memory
  int64_t max_prepared_bytes = 128 << 20;         // of prepared ops that are kept for reuse
  int64_t max_sessions = 1024;                    // at once
  int64_t max_handles_per_session = 1 << 20;      // tensors at once
  int64_t max_bytes_per_session = 0;              // on each device; 0: no limit
  int64_t max_sessions_per_principal = 0;         // at once; 0: no limit
  int64_t max_handles_per_principal = 0;          // tensors at once, over all sessions; 0: no limit
  int64_t max_bytes_per_principal = 0;            // on each device, over all sessions; 0: no limit
  int64_t max_published_per_principal = 1024;     // names of shared tensors; 0: none allowed
  int64_t max_upload_bytes_per_principal = 0;     // of unfinished uploads; 0: no limit
  int64_t max_tickets_per_principal = 65536;      // tickets for tensors not yet fetched
  int64_t max_pulls_per_principal = 1024;         // pulls from other servers at once
  int64_t max_connections = 0;                    // over TCP; 0: as many as descriptors allow
  int64_t max_connections_per_address = 0;        // over TCP, from one address; 0: no limit
  int64_t max_connections_per_principal = 0;      // over TCP; 0: no limit
  int64_t max_waiting_calls_per_session = 1024;   // calls that wait for a command of the stream
  int64_t max_group_members = 1 << 16;            // of all callers together: each has a thread
  int64_t max_group_members_per_session = 64;     // members of groups for collective operations
  int64_t max_group_members_per_principal = 256;  // the same, over all sessions; 0: no limit
  int64_t max_ops_in_flight = 1 << 18;  // ops of a session that were accepted and wait or run
  int64_t max_op_seconds = 0;           // how long an op or a program may run; 0: no limit
  int64_t max_idle_seconds = 0;         // the maximum of Session::TimeSinceActivity(); 0: no limit
  int64_t default_lease_seconds = 30;   // if the client names no lease
  int64_t max_lease_seconds = 86400;    // the longest lease that a client can get
};

}  // namespace tensord::server
