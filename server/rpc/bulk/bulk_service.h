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

// The objects that all bulk calls use. They outlive the calls.
struct BulkContext {
  ServiceContext* service;
  ZeroCopySlices slices = {};
  SharedRings rings = {};
};

// These functions return the factories of the handlers. `context` outlives the calls.
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

  BulkContext* context() { return &context_; }

  bool shares_memory() const { return context_.rings.available(); }
  // Refuses further rings of shared memory.
  void DrainRings() { context_.rings.Drain(); }

  // Returns the queues, which exist until Stop().
  std::vector<CallQueue*> queues() const;
  // Blocks until gRPC has released all tensor memory that it sends, or until the deadline. Then
  // ends the queues. Call it when the queues have no calls, and before the gRPC server is
  // destroyed.
  void Stop(std::chrono::steady_clock::time_point deadline);

 private:
  BulkContext context_;
  std::vector<std::unique_ptr<CallQueue>> queues_;
};

}  // namespace tensord::server
