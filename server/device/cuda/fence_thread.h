// Calls back when a GPU has reached a point of its work.
//
// This is a thread that waits for events. cudaLaunchHostFunc() isn't sufficient: it doesn't call
// host functions after the context is broken, and a host function must not call the runtime, so it
// can't free buffers.
#pragma once

#include <cuda_runtime_api.h>

#include <deque>
#include <functional>
#include <thread>

#include "absl/status/status.h"
#include "tensord/common/util/mutex.h"
#include "tensord/server/device/cuda/cuda_handles.h"

namespace tensord::server::cuda {

// Thread-safe. The destructor blocks until all fences have been reached and called back.
class FenceThread {
 public:
  // `events` is the pool of the fences' events. It must outlive the object.
  FenceThread(int physical_index, EventPool* events);
  ~FenceThread();

  // Calls `done` on the fence thread when the GPU has reached `event`. If the device has reported
  // an error by then, passes it to `done`. Fences are called back in the order in which they were
  // added. Then returns `event` to the pool.
  void Add(Event event, std::function<void(absl::Status)> done);

 private:
  struct Fence {
    Event event;
    std::function<void(absl::Status)> done;
  };

  void Run();

  const int physical_index_;
  EventPool* const events_;
  Mutex mu_;
  CondVar wake_;
  std::deque<Fence> fences_ ABSL_GUARDED_BY(mu_);
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  std::thread thread_;
};

}  // namespace tensord::server::cuda
