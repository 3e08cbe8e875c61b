// The handlers of Write and Read, and the queues that they run on.
#pragma once

#include <grpcpp/grpcpp.h>

#include <memory>
#include <vector>

#include "tensord/server/rpc/bulk_queue.h"
#include "tensord/server/rpc/lent_memory.h"
#include "tensord/server/rpc/service.h"

namespace tensord::server {

// What every bulk call works with. Outlives the calls.
struct BulkContext {
  ServiceContext* service;
  TensorServiceBase* rpc;
  LentMemory lent;
};

// Have `queue` wait for a client's call, and then for the next one.
void AwaitWrite(BulkContext* context, BulkQueue* queue);
void AwaitRead(BulkContext* context, BulkQueue* queue);

class BulkService {
 public:
  // Before the server is built. Both outlive this.
  BulkService(ServiceContext* context, TensorServiceBase* rpc, grpc::ServerBuilder* builder);
  // The server must have been shut down and be gone: waits until gRPC has let go of tensor memory.
  ~BulkService();

  // Once the server is built.
  void Start();
  // Ends the queues, which still use the server, once that has been shut down.
  void Stop();

 private:
  BulkContext context_;
  std::vector<std::unique_ptr<BulkQueue>> queues_;
};

}  // namespace tensord::server
