// Reads the values of all metrics from the parts of the server.
#pragma once

#include <chrono>

#include "tensord/server/engine/engine.h"
#include "tensord/server/metrics/snapshot.h"
#include "tensord/server/rpc/auth/authenticator.h"
#include "tensord/server/rpc/auth/listeners.h"
#include "tensord/server/rpc/call_dispatcher.h"
#include "tensord/server/session/session_table.h"

namespace tensord::server {

// The parts of the server that have metrics.
struct MetricsSources {
  std::chrono::system_clock::time_point started_at;
  const Engine* engine;
  const SessionTable* sessions;
  Authenticator* authenticator;
  const Listeners* listeners;
  const CallDispatcher* dispatcher;
};

// Adds a sample for each metric. Waits neither for a device nor for a call. Call it from one thread
// at a time.
void CollectMetrics(const MetricsSources& sources, metrics::Snapshot* snapshot);

}  // namespace tensord::server
