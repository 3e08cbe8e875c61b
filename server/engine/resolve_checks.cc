#include "tensord/server/engine/resolve_checks.h"

#include <memory>
#include <utility>
#include <vector>

#include "tensord/common/util/mutex.h"

namespace tensord::server {

void FenceAndResolve(DeviceSlot& slot, std::function<void(absl::Status)> done) {
  std::vector<ValueCheckRef> checks = slot.checks.Take();
  if (checks.empty()) {
    slot.device->Fence(std::move(done));
    return;
  }
  slot.device->Fence([checks = std::move(checks), done = std::move(done)](absl::Status fenced) {
    for (const ValueCheckRef& check : checks) check->Resolve(fenced);
    done(std::move(fenced));
  });
}

absl::Status AwaitFence(DeviceSlot& slot) {
  // The callback shares the fence, because it may end after this function has returned.
  struct Fence {
    Mutex mu;
    CondVar changed;
    bool reached ABSL_GUARDED_BY(mu) = false;
    absl::Status status ABSL_GUARDED_BY(mu);
  };
  auto fence = std::make_shared<Fence>();
  FenceAndResolve(slot, [fence](absl::Status status) {
    MutexLock lock(&fence->mu);
    fence->reached = true;
    fence->status = std::move(status);
    fence->changed.SignalAll();
  });
  MutexLock lock(&fence->mu);
  while (!fence->reached) fence->changed.Wait(&fence->mu);
  return fence->status;
}

void WhenChecked(const TensorRef& tensor, std::function<void()> callback) {
  // The tensor exists while it calls this function. A further reference would keep
  // Session::Abandon() from stopping the op.
  tensor->WhenDone([tensor = tensor.get(), callback = std::move(callback)] {
    const CheckListRef& checks = tensor->checks();
    if (checks == nullptr || checks->resolved()) return callback();
    DeviceSlot& slot = *tensor->slot();
    slot.executor->Post(slot.executor->NewLane(), [&slot, checks, callback] {
      FenceAndResolve(slot, [checks, callback](const absl::Status& fenced) {
        checks->Resolve(fenced);
        callback();
      });
    });
  });
}

}  // namespace tensord::server
