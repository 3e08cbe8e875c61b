#include "tensord/server/device/cuda/cuda_handles.h"

#include <sys/prctl.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>
#include <utility>

#include "tensord/common/util/status_macros.h"
#include "tensord/server/device/cuda/cuda_status.h"

namespace tensord::server::cuda {

namespace {

// The physical index of the GPU of the thread's innermost guard; -1 if there is none.
thread_local int innermost_gpu = -1;

// The number of calls of InvalidateCurrentGpus().
std::atomic<int64_t> generation = 0;
// The physical index of the thread's current GPU, -1 if unknown, and the generation in which
// MakeCurrent() set it.
thread_local int current_gpu = -1;
thread_local int64_t current_generation = 0;

}  // namespace

cudaError_t MakeCurrent(int physical_index) {
  const int64_t now = generation.load(std::memory_order_acquire);
  if (current_gpu == physical_index && current_generation == now) return cudaSuccess;
  const cudaError_t error = cudaSetDevice(physical_index);
  current_gpu = error == cudaSuccess ? physical_index : -1;
  current_generation = now;
  return error;
}

void InvalidateCurrentGpus() { generation.fetch_add(1, std::memory_order_release); }

DeviceGuard::DeviceGuard(int physical_index)
    : outer_(std::exchange(innermost_gpu, physical_index)) {
  MakeCurrent(physical_index);
}

DeviceGuard::~DeviceGuard() {
  innermost_gpu = outer_;
  if (outer_ >= 0) MakeCurrent(outer_);
}

absl::StatusOr<Stream> MakeStream() {
  cudaStream_t stream = nullptr;
  TENSORD_CUDA_RETURN_IF_ERROR(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  return Stream(stream);
}

absl::StatusOr<Event> MakeEvent() {
  cudaEvent_t event = nullptr;
  TENSORD_CUDA_RETURN_IF_ERROR(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  return Event(event);
}

absl::StatusOr<PinnedMemory> MakePinnedMemory(int64_t bytes) {
  void* memory = nullptr;
  TENSORD_CUDA_RETURN_IF_ERROR(
      cudaHostAlloc(&memory, static_cast<size_t>(bytes), cudaHostAllocDefault));
  return PinnedMemory(memory);
}

absl::StatusOr<DeviceMemory> MakeDeviceMemory(int64_t bytes) {
  void* memory = nullptr;
  TENSORD_CUDA_RETURN_IF_ERROR(cudaMalloc(&memory, static_cast<size_t>(bytes)));
  return DeviceMemory(memory);
}

cudaError_t AwaitEvent(cudaEvent_t event) {
  using std::chrono::microseconds;
  // Linux may prolong a sleep by the thread's timer slack, which is 50 us by default.
  thread_local const int slack = prctl(PR_SET_TIMERSLACK, 1000UL, 0, 0, 0);
  static_cast<void>(slack);
  const auto start = std::chrono::steady_clock::now();
  cudaError_t state = cudaEventQuery(event);
  while (state == cudaErrorNotReady) {
    const auto waited = std::chrono::steady_clock::now() - start;
    // A query holds locks of the driver that other threads need to launch kernels, so after 20 us
    // this thread sleeps between queries.
    if (waited < microseconds(20)) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(
          std::clamp<std::chrono::nanoseconds>(waited / 100, microseconds(10), microseconds(200)));
    }
    state = cudaEventQuery(event);
  }
  cudaGetLastError();  // clears "not ready", which the runtime reports as an error
  return state;
}

absl::StatusOr<Event> EventPool::Acquire() {
  {
    MutexLock lock(&mu_);
    if (!idle_.empty()) {
      Event event = std::move(idle_.back());
      idle_.pop_back();
      return event;
    }
  }
  return MakeEvent();
}

void EventPool::Return(Event event) {
  constexpr size_t kMaxIdle = 1024;
  MutexLock lock(&mu_);
  if (idle_.size() < kMaxIdle) idle_.push_back(std::move(event));
}

void EventPool::Clear() {
  MutexLock lock(&mu_);
  idle_.clear();
}

absl::Status OrderStreams(cudaStream_t earlier, cudaStream_t later, EventPool& events) {
  TENSORD_ASSIGN_OR_RETURN(Event event, events.Acquire());
  TENSORD_CUDA_RETURN_IF_ERROR(cudaEventRecord(event.get(), earlier));
  TENSORD_CUDA_RETURN_IF_ERROR(cudaStreamWaitEvent(later, event.get(), 0));
  // The wait refers to the record above. A later record of the event doesn't change it.
  events.Return(std::move(event));
  return absl::OkStatus();
}

}  // namespace tensord::server::cuda
