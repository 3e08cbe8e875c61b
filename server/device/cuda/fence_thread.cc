#include "tensord/server/device/cuda/fence_thread.h"

#include <chrono>
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

absl::Status FenceThread::WaitFor(cudaEvent_t event) {
  // cudaEventSynchronize() returns about kSpin after the event, because the GPU interrupts the CPU
  // and the thread wakes up. After a short kernel, this would double the time of a fence, so the
  // thread polls first. Polling for longer gains little, and it holds locks of the driver that
  // threads need to launch kernels.
  constexpr auto kSpin = std::chrono::microseconds(20);
  const auto deadline = std::chrono::steady_clock::now() + kSpin;
  cudaError_t state = cudaEventQuery(event);
  while (state == cudaErrorNotReady && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::yield();
    state = cudaEventQuery(event);
  }
  if (state == cudaErrorNotReady) state = cudaEventSynchronize(event);
  cudaGetLastError();  // clears "not ready", which the runtime reports as an error
  return CudaStatus(state, "waiting for the device");
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
    fence.done(WaitFor(fence.event.get()));
    events_->Return(std::move(fence.event));
  }
}

}  // namespace tensord::server::cuda
