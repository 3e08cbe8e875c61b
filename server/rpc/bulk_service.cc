#include "tensord/server/rpc/bulk_service.h"

namespace tensord::server {
namespace {
// Transfers that are copied at the same time; more take turns.
constexpr int kQueues = 2;
}  // namespace

BulkService::BulkService(ServiceContext* context, TensorServiceBase* rpc,
                         grpc::ServerBuilder* builder)
    : context_{.service = context, .rpc = rpc, .lent = {}} {
  for (int i = 0; i < kQueues; ++i) queues_.push_back(std::make_unique<BulkQueue>(builder));
}

void BulkService::Start() {
  for (const auto& queue : queues_) {
    AwaitWrite(&context_, queue.get());
    AwaitRead(&context_, queue.get());
    queue->Start();
  }
}

BulkService::~BulkService() {
  queues_.clear();
  context_.lent.AwaitAll();
}

}  // namespace tensord::server
