// The runtime's handles, owned: the current device, streams, events, pinned memory.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tensord/common/util/mutex.h"

namespace tensord::server::cuda {

// Makes a GPU current for the calling thread. Calls cudaSetDevice() only if another GPU is current
// or InvalidateCurrentGpus() was called since. Code that calls cudaSetDevice() directly would make
// this wrong. Thread-safe.
cudaError_t MakeCurrent(int physical_index);

// Makes the next MakeCurrent() of each thread call cudaSetDevice(). Call it after
// cudaDeviceReset(), which destroys a context. Thread-safe.
void InvalidateCurrentGpus();

// Makes a GPU current for the calling thread. Guards nest: an inner guard makes its own GPU
// current, and its destructor makes the outer guard's GPU current again. If making a GPU current
// fails, the CUDA calls under the guard return the error. The outermost guard leaves its GPU
// current. Restoring the GPU from before could create a context there, which takes some hundred
// megabytes.
class DeviceGuard {
 public:
  explicit DeviceGuard(int physical_index);
  ~DeviceGuard();
  DeviceGuard(const DeviceGuard&) = delete;
  DeviceGuard& operator=(const DeviceGuard&) = delete;

 private:
  const int outer_;  // physical index of the enclosing guard's GPU; -1 if there is none
};

// What owns a handle of type `Handle`, destroyed by `kDestroy`. Movable; null when moved from.
template <typename Handle, cudaError_t (*kDestroy)(Handle)>
class Owned {
 public:
  Owned() = default;
  explicit Owned(Handle handle) : handle_(handle) {}
  Owned(Owned&& other) noexcept : handle_(std::exchange(other.handle_, Handle())) {}
  Owned& operator=(Owned&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~Owned() {
    if (handle_ != Handle()) kDestroy(handle_);
  }

  Handle get() const { return handle_; }
  // Gives up the handle without destroying it.
  Handle Release() { return std::exchange(handle_, Handle()); }

 private:
  Handle handle_ = Handle();
};

using Stream = Owned<cudaStream_t, cudaStreamDestroy>;
using Event = Owned<cudaEvent_t, cudaEventDestroy>;
using Graph = Owned<cudaGraph_t, cudaGraphDestroy>;
using PinnedMemory = Owned<void*, cudaFreeHost>;
using DeviceMemory = Owned<void*, cudaFree>;

// All of these on the current device.
absl::StatusOr<Stream> MakeStream();  // doesn't wait for the default stream
absl::StatusOr<Event> MakeEvent();    // without times; waiting for it spins
absl::StatusOr<PinnedMemory> MakePinnedMemory(int64_t bytes);
absl::StatusOr<DeviceMemory> MakeDeviceMemory(int64_t bytes);

// Events for reuse; waiting for one sleeps. Thread-safe. Acquire() with the pool's device current.
class EventPool {
 public:
  absl::StatusOr<Event> Acquire();
  void Return(Event event);
  void Clear();

 private:
  Mutex mu_;
  std::vector<Event> idle_ ABSL_GUARDED_BY(mu_);
};

// Work given to `later` from now on waits for everything given to `earlier` so far. Both are
// streams of the current device.
absl::Status OrderStreams(cudaStream_t earlier, cudaStream_t later, EventPool& events);

}  // namespace tensord::server::cuda
