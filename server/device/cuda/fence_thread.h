// Tells when a GPU has got somewhere in its work.
//
// A thread that waits for events, and not cudaLaunchHostFunc: host functions are not called once
// the context is broken, and must not let go of buffers, which calls the runtime.
#pragma once

#include <cuda_runtime_api.h>

#include <deque>
#include <functional>
#include <thread>

#include "absl/status/status.h"
#include "tensord/common/util/mutex.h"
#include "tensord/server/device/cuda/cuda_handles.h"

namespace tensord::server::cuda {

// Thread-safe. Destroying it waits for every fence and calls back for it.
class FenceThread {
 public:
  // Events come from `events` and go back there.
  FenceThread(int physical_index, EventPool* events);
  ~FenceThread();

  // Calls `done` on this thread when `event` has come to pass, with the error that the device has
  // reported by then, if any. Fences are called back in the order in which they were added.
  void Add(Event event, std::function<void(absl::Status)> done);

 private:
  struct Fence {
    Event event;
    std::function<void(absl::Status)> done;
  };

  void Run();
  static absl::Status WaitFor(cudaEvent_t event);

  const int physical_index_;
  EventPool* const events_;
  Mutex mu_;
  CondVar wake_;
  std::deque<Fence> fences_ ABSL_GUARDED_BY(mu_);
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  std::thread thread_;
};

}  // namespace tensord::server::cuda
