// The handlers of Write, Read, Fetch and SharedMemory, and the queues that they run on.
#pragma once

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <memory>
#include <vector>

#include "tensord/server/rpc/bulk/shared_rings.h"
#include "tensord/server/rpc/bulk/zero_copy_slices.h"
#include "tensord/server/rpc/call_dispatcher.h"
#include "tensord/server/rpc/call_queue.h"
#include "tensord/server/rpc/service_context.h"

namespace tensord::server {

// What every bulk call works with. Outlives the calls.
struct BulkContext {
  ServiceContext* service;
  ZeroCopySlices slices = {};
  SharedRings rings = {};
};

// The handlers.
CallFactory MakeWriteFactory(BulkContext* context);
CallFactory MakeReadFactory(BulkContext* context);
CallFactory MakeSharedMemoryFactory(BulkContext* context);

class BulkService {
 public:
  // `context` outlives this object.
  explicit BulkService(ServiceContext* context);

  // Adds queues to the server that is being built. New calls arrive at `accept_queue`, which
  // outlives this object.
  void AddQueues(grpc::ServerBuilder* builder, CallQueue* accept_queue);

  // Makes the queues await calls. Call it once the server is built.
  void Start(CallDispatcher* dispatcher);

  // What the handlers work with.
  BulkContext* context() { return &context_; }

  bool shares_memory() const { return context_.rings.available(); }
  // Lets no further ring of shared memory be made.
  void DrainRings() { context_.rings.Drain(); }

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
