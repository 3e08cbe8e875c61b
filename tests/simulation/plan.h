// What the world of a seed is like: a few troubles at a time, so that each is met alone and in
// company.
#pragma once

#include "tensord/tests/simulation/dice.h"
#include "tensord/tests/simulation/host.h"
#include "tensord/tests/simulation/model.h"

namespace tensord::simulation {

struct Plan {
  HostOptions host;
  Troubles troubles;
  int principals = 1;
  int max_clients = 1;  // over the whole life of the world
  int64_t actions = 0;  // of each client
  int64_t max_pending_commands = 0;
  int64_t max_pending_bytes = 0;
  int64_t lease_seconds = 0;
  bool eager = false;  // as ClientEnd's
  bool uploads = false;
  // Each once in so many steps; 0 is never.
  int64_t breaks = 0;
  int64_t upload_breaks = 0;
  int64_t upload_drops = 0;  // handles let go of while their upload is under way
  int64_t long_pauses = 0;   // may be longer than a lease
  int64_t failing_allocations = 0;
  int64_t holds = 0;  // devices that are busy with something else
  int64_t restarts = 0;
  int64_t drains = 0;
  int64_t deaths = 0;    // of clients
  int64_t closings = 0;  // likewise, in good order
  int64_t thefts = 0;    // another takes a client's session over
};

Plan MakePlan(Dice* dice);

}  // namespace tensord::simulation
