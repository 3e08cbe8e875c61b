// The objects and settings that every handler uses.
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
  WorkerPool* workers;                 // for work that may block
  WorkerPool* message_workers;         // for messages whose handling takes long
  Collectives* collectives = nullptr;  // null if this server takes no part in groups
  std::string no_collectives_reason;   // if `collectives` is null: why
  Limits limits;
  std::vector<UnavailableKind> unavailable_kinds;
  std::string host_name = {};
  std::string boot_id;  // the host's; empty if this server shares no memory

  // Other servers, and the fetches from them.
  Peers* peers = nullptr;
  PullTable* pulls = nullptr;
  std::string peer_address = {};  // the address by which other servers reach this one

  // The calls of Read and Fetch whose request has arrived. A shutdown first waits for them.
  CallGroup reads = {};
  // The calls of SessionStream, SharedMemory and Watch. They last until their clients end them, so
  // a shutdown has to end them.
  CallGroup streams = {};
};

}  // namespace tensord::server
