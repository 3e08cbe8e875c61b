// Owners of the CUDA runtime's handles (streams, events, memory), and the current device.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tensord/common/util/mutex.h"

namespace tensord::server::cuda {

// Makes a GPU current for the calling thread. Remembers the thread's current GPU, and calls
// cudaSetDevice() only if another GPU is current or InvalidateCurrentGpus() was called since. So no
// other code may call cudaSetDevice(). Thread-safe.
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

// Owns a handle of type `Handle`, which `kDestroy` destroys. Movable. Move assignment swaps the
// handles.
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
  // Returns the handle, which the caller then owns.
  Handle Release() { return std::exchange(handle_, Handle()); }

 private:
  Handle handle_ = Handle();
};

using Stream = Owned<cudaStream_t, cudaStreamDestroy>;
using Event = Owned<cudaEvent_t, cudaEventDestroy>;
using Graph = Owned<cudaGraph_t, cudaGraphDestroy>;
using PinnedMemory = Owned<void*, cudaFreeHost>;
using DeviceMemory = Owned<void*, cudaFree>;

// The new object is on the current device.
absl::StatusOr<Stream> MakeStream();  // the stream doesn't synchronize with the default stream
absl::StatusOr<Event> MakeEvent();    // the event has no timing. cudaEventSynchronize() spins
absl::StatusOr<PinnedMemory> MakePinnedMemory(int64_t bytes);
absl::StatusOr<DeviceMemory> MakeDeviceMemory(int64_t bytes);

// Blocks until the GPU has reached the event. Polls the event, and sleeps between two queries for
// about a hundredth of the time that it has waited. Returns the result of the last query. Sets the
// timer slack of the calling thread. cudaEventSynchronize() would spin, or wait for an interrupt by
// the GPU, which took up to a millisecond on a virtual machine.
cudaError_t AwaitEvent(cudaEvent_t event);

// Keeps events of one device for reuse. The events have no timing. Thread-safe.
class EventPool {
 public:
  // The pool's device must be current.
  absl::StatusOr<Event> Acquire();
  void Return(Event event);
  // Destroys the events in the pool.
  void Clear();

 private:
  Mutex mu_;
  std::vector<Event> idle_ ABSL_GUARDED_BY(mu_);
};

// Makes work that is enqueued on `later` from now on wait for all work that is on `earlier` now.
// Both must be streams of the current device.
absl::Status OrderStreams(cudaStream_t earlier, cudaStream_t later, EventPool& events);

}  // namespace tensord::server::cuda
