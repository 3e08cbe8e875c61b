#include "tensord/server/device/cuda/fence_thread.h"

#include <utility>

#include "tensord/server/device/cuda/cuda_status.h"

namespace tensord::server::cuda {

FenceThread::FenceThread(int physical_index, EventPool* events)
    : physical_index_(physical_index), events_(events), thread_([this] { Run(); }) {}

FenceThread::~FenceThread() {
  {
    MutexLock lock(&mu_);
    stopping_ = true;
  }
  wake_.SignalAll();
  thread_.join();
}

void FenceThread::Add(Event event, std::function<void(absl::Status)> done) {
  {
    MutexLock lock(&mu_);
    fences_.push_back({std::move(event), std::move(done)});
  }
  wake_.Signal();
}

void FenceThread::Run() {
  const DeviceGuard guard(physical_index_);
  while (true) {
    Fence fence;
    {
      MutexLock lock(&mu_);
      while (fences_.empty() && !stopping_) wake_.Wait(&mu_);
      if (fences_.empty()) return;
      fence = std::move(fences_.front());
      fences_.pop_front();
    }
    fence.done(CudaStatus(AwaitEvent(fence.event.get()), "waiting for the device"));
    events_->Return(std::move(fence.event));
  }
}

}  // namespace tensord::server::cuda
