// The properties of a seed's world. A world has few kinds of faults, so that each occurs alone in
// some worlds and with others in other worlds.
#pragma once

#include "tensord/tests/simulation/host.h"
#include "tensord/tests/simulation/model.h"
#include "tensord/tests/simulation/random_source.h"

namespace tensord::simulation {

struct Plan {
  HostOptions host;
  ExpectedErrors expected_errors;
  int principals = 1;
  int max_clients = 1;  // in all, not at once
  int64_t actions = 0;  // of each client
  int64_t max_pending_commands = 0;
  int64_t max_pending_bytes = 0;
  int64_t lease_seconds = 0;
  bool eager = false;  // see ClientEnd::Options
  bool uploads = false;
  // Each occurs once in this number of steps (`slices`: of slices), on average. 0: never.
  int64_t breaks = 0;  // of connections
  int64_t upload_breaks = 0;
  int64_t upload_drops = 0;  // of handles during their upload
  int64_t long_pauses = 0;   // may be longer than a lease
  int64_t failing_allocations = 0;
  int64_t device_blocks = 0;  // Host::BlockDevice()
  int64_t slices = 0;         // slices of messages that are as small as possible
  int64_t restarts = 0;
  int64_t drains = 0;
  int64_t crashes = 0;    // clients that end without closing their session
  int64_t closings = 0;   // clients that close their session
  int64_t takeovers = 0;  // another connection takes over a client's session
};

Plan MakePlan(RandomSource* random);

}  // namespace tensord::simulation
