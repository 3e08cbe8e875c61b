// What every handler works with.
#pragma once

#include <string>
#include <vector>

#include "tensord/server/collective/collectives.h"
#include "tensord/server/device/backend.h"
#include "tensord/server/engine/engine.h"
#include "tensord/server/rpc/call_group.h"
#include "tensord/server/rpc/worker_pool.h"
#include "tensord/server/session/limits.h"
#include "tensord/server/session/session_table.h"

namespace tensord::server {

class Peers;
class PullTable;

// Outlives the calls.
struct ServiceContext {
  Engine* engine;
  SessionTable* sessions;
  WorkerPool* workers;
  Collectives* collectives = nullptr;  // null where there are no groups
  std::string no_collectives_reason;   // why not
  Limits limits;
  std::vector<UnavailableKind> unavailable_kinds;
  std::string host_name = {};  // of this machine
  std::string boot_id;         // empty where no memory is shared with clients

  // Other servers, and what is fetched from them.
  Peers* peers = nullptr;
  PullTable* pulls = nullptr;
  std::string peer_address = {};  // by which they reach this one

  // Calls that a shutdown lets finish before all else: of Read and Fetch, once they have begun.
  CallGroup reads = {};
  // Calls that last for as long as their clients do, so that a shutdown has to end them: of
  // SessionStream, SharedMemory and Watch.
  CallGroup streams = {};
};

}  // namespace tensord::server
