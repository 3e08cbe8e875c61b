#include "tensord/server/rpc/bulk/bulk_service.h"

#include <algorithm>
#include <thread>

namespace tensord::server {
namespace {

// One thread can serve a connection of several GB/s, and too many threads wake one another. So
// there is one queue per kCoresPerQueue cores, up to this many.
constexpr int kMaxQueues = 4;
constexpr int kCoresPerQueue = 4;

int NumQueues() {
  const int cores = static_cast<int>(std::thread::hardware_concurrency());
  return std::clamp(cores / kCoresPerQueue, 1, kMaxQueues);
}

}  // namespace

BulkService::BulkService(ServiceContext* context)
    : context_{.service = context,
               .rings = SharedRings(static_cast<int>(context->limits.max_rings))} {}

void BulkService::AddQueues(grpc::ServerBuilder* builder, CallQueue* accept_queue) {
  for (int i = 0; i < NumQueues(); ++i) {
    queues_.push_back(std::make_unique<CallQueue>(builder, accept_queue));
  }
}

void BulkService::Start(CallDispatcher* dispatcher) {
  for (const auto& queue : queues_) {
    dispatcher->AwaitCalls(queue.get(), QueueKind::kBulk);
    queue->Start();
  }
}

std::vector<CallQueue*> BulkService::queues() const {
  std::vector<CallQueue*> queues;
  for (const auto& queue : queues_) queues.push_back(queue.get());
  return queues;
}

void BulkService::Stop(std::chrono::steady_clock::time_point deadline) {
  context_.slices.Close(deadline);
  queues_.clear();
}

}  // namespace tensord::server
