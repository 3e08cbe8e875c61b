// The handlers of Write, Read, Fetch and SharedMemory, and the queues that they run on.
#pragma once

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <memory>
#include <vector>

#include "tensord/common/mutex.h"
#include "tensord/server/rpc/call_queue.h"
#include "tensord/server/rpc/lent_memory.h"
#include "tensord/server/rpc/service.h"
#include "tensord/server/rpc/shared_rings.h"

namespace tensord::server {

// What every bulk call works with. Outlives the calls.
struct BulkContext {
  ServiceContext* service;
  TensorRpc* rpc;
  PeerRpc* peer_rpc;
  LentMemory lent;
  SharedRings rings;

  Mutex mu;
  CondVar reads_ended;
  int reads ABSL_GUARDED_BY(mu) = 0;  // and fetches, that have begun
  bool draining ABSL_GUARDED_BY(mu) = false;
};

// Have `queue` wait for a client's call, and then for the next one.
void AwaitWrite(BulkContext* context, CallQueue* queue);
void AwaitRead(BulkContext* context, CallQueue* queue);
void AwaitFetch(BulkContext* context, CallQueue* queue);
void AwaitSharedMemory(BulkContext* context, CallQueue* queue);

class BulkService {
 public:
  // Before the server is built. Clients come in through `door`. All outlive this.
  BulkService(ServiceContext* context, TensorRpc* rpc, PeerRpc* peer_rpc,
              grpc::ServerBuilder* builder, CallQueue* door);

  // Once the server is built.
  void Start();

  bool shares_memory() const { return context_.rings.available(); }
  // Refuses further reads and waits, until the deadline, for those that have begun to end. To be
  // called before the server is shut down: a connection that has been told so before the end of a
  // read is closed with its last bytes still on the way.
  void DrainReads(std::chrono::steady_clock::time_point deadline);

  // Ends the calls of SharedMemory, which would otherwise stay for as long as their clients do.
  void DrainSharedMemory() { context_.rings.Drain(); }

  // Once the server has been shut down: waits, until the deadline, for the calls to end.
  void AwaitNoCalls(std::chrono::steady_clock::time_point deadline);
  bool AnyCalls() const;
  // After that, and before the server goes: waits, until the deadline, for gRPC to
  // have sent the tensor memory that it still holds, and ends the queues.
  void Stop(std::chrono::steady_clock::time_point deadline);

 private:
  BulkContext context_;
  std::vector<std::unique_ptr<CallQueue>> queues_;
};

}  // namespace tensord::server
