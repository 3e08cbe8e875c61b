#include "tensord/server/rpc/bulk_service.h"

#include <algorithm>
#include <thread>

namespace tensord::server {
namespace {

// One thread keeps up with a connection of several GB/s, and more of them than are needed wake one
// another: a second from eight cores on, and so on up to this many.
constexpr int kMostQueues = 4;
constexpr int kCoresPerQueue = 4;

int NumQueues() {
  const int cores = static_cast<int>(std::thread::hardware_concurrency());
  return std::clamp(cores / kCoresPerQueue, 1, kMostQueues);
}

}  // namespace

BulkService::BulkService(ServiceContext* context, TensorServiceBase* rpc,
                         grpc::ServerBuilder* builder)
    : context_{.service = context, .rpc = rpc, .lent = {}} {
  for (int i = 0; i < NumQueues(); ++i) queues_.push_back(std::make_unique<BulkQueue>(builder));
}

void BulkService::Start() {
  for (const auto& queue : queues_) {
    AwaitWrite(&context_, queue.get());
    AwaitRead(&context_, queue.get());
    queue->Start();
  }
}

void BulkService::Stop() { queues_.clear(); }

BulkService::~BulkService() {
  Stop();
  context_.lent.AwaitAll();
}

}  // namespace tensord::server
