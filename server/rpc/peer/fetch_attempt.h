// One call of a pull to its source.
#pragma once

#include <grpcpp/alarm.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>

#include "tensord/server/rpc/peer/ring_receiver.h"

namespace tensord::server {

// The state of a call that PeerPull makes. A pull has one at a time, and makes a new one for each
// retry. Only the thread of the peers' queue uses it, except for context.TryCancel(), which is
// thread-safe, and for the mapping of `ring`, which a worker does (MessageStore::MapByWorker). The
// object must exist until every operation of the call has ended.
struct FetchAttempt {
  grpc::ClientContext context;
  std::unique_ptr<grpc::GenericClientAsyncReaderWriter> call;  // destroyed before context
  grpc::Alarm deadline;                                        // for the source's first answer
  grpc::Status status;                                         // valid once `finished`
  bool answered = false;
  bool finished = false;
  bool handed_over = false;  // parts receive the remaining bytes
  std::chrono::steady_clock::time_point first_byte;
  int64_t bytes = 0;
  std::deque<grpc::ByteBuffer> outgoing;
  bool sending = false;
  bool wants_ring = false;  // requested, and not yet offered
  RingReceiver ring;
};

}  // namespace tensord::server
