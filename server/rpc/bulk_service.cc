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

BulkService::BulkService(ServiceContext* context, TensorRpc* rpc, PeerRpc* peer_rpc,
                         grpc::ServerBuilder* builder, CallQueue* door)
    : context_{.service = context, .rpc = rpc, .peer_rpc = peer_rpc} {
  for (int i = 0; i < NumQueues(); ++i)
    queues_.push_back(std::make_unique<CallQueue>(builder, door));
}

void BulkService::Start() {
  for (const auto& queue : queues_) {
    AwaitWrite(&context_, queue.get());
    AwaitRead(&context_, queue.get());
    AwaitFetch(&context_, queue.get());
    AwaitSharedMemory(&context_, queue.get());
    queue->Start();
  }
}

void BulkService::DrainReads(std::chrono::steady_clock::time_point deadline) {
  MutexLock lock(&context_.mu);
  context_.draining = true;
  while (context_.reads > 0) {
    const auto left = deadline - std::chrono::steady_clock::now();
    if (left <= left.zero()) return;
    context_.reads_ended.WaitFor(&context_.mu, left);
  }
}

void BulkService::AwaitNoCalls(std::chrono::steady_clock::time_point deadline) {
  for (const auto& queue : queues_) queue->AwaitNoCalls(deadline);
}

bool BulkService::AnyCalls() const {
  return std::any_of(queues_.begin(), queues_.end(),
                     [](const auto& queue) { return queue->AnyCalls(); });
}

void BulkService::Stop(std::chrono::steady_clock::time_point deadline) {
  context_.lent.Close(deadline);
  queues_.clear();
}

}  // namespace tensord::server
