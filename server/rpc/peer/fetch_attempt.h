// One attempt of a pull: a call to the source, and what it has brought.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>

#include "tensord/server/rpc/peer/ring_receiver.h"
#include "tensord/server/rpc/peer/source_call.h"

namespace tensord::server {

// A pull has one at a time, and makes a new one for each retry. Only the thread of the peers'
// queue uses it, except for call->Cancel(), which is thread-safe, and for the mapping of `ring`,
// which a worker does (MessageStore::MapByWorker).
struct FetchAttempt {
  std::shared_ptr<SourceCall> call;
  bool handed_over = false;  // parts receive the remaining bytes
  std::chrono::steady_clock::time_point first_byte;
  int64_t bytes = 0;
  bool wants_ring = false;  // requested, and not yet offered
  RingReceiver ring;
};

}  // namespace tensord::server
