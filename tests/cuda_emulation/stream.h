// A stream: a queue of tasks and a thread that runs them in order.
#pragma once

#include <cuda_runtime_api.h>

#include <atomic>
#include <deque>
#include <functional>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "tensord/common/mutex.h"
#include "tensord/tests/cuda_emulation/flag.h"

namespace tensord::cuda_emulation {

using Task = std::function<void()>;

}  // namespace tensord::cuda_emulation

// The name is cudart's. All member functions are thread-safe; a task may not call them.
struct CUstream_st {
 public:
  using Task = tensord::cuda_emulation::Task;

  CUstream_st(int device, unsigned seed);
  // Blocks until all queued tasks have run.
  ~CUstream_st();

  int device() const { return device_; }

  // Enqueues a kernel, copy, graph or host function. If the stream is being captured, records the
  // task instead. The stream skips the task if its device has a sticky error by then. Returns
  // cudaSuccess.
  cudaError_t EnqueueWork(Task task);

  // Enqueues another task, which runs even after a sticky error. If the stream is being captured,
  // reports that in the name of `call`, invalidates the capture and returns
  // cudaErrorStreamCaptureUnsupported.
  cudaError_t EnqueueControl(Task task, absl::string_view call);

  // Blocks until the tasks that are enqueued now have run.
  void Synchronize();

  // Returns cudaSuccess if no task is queued or running, otherwise cudaErrorNotReady. If the stream
  // is being captured, invalidates the capture and returns cudaErrorStreamCaptureUnsupported.
  cudaError_t Query();

  // If a capture is active, returns cudaErrorIllegalState.
  cudaError_t BeginCapture();
  // Moves the recorded tasks to `tasks`. Returns cudaErrorIllegalState without a capture, and
  // cudaErrorStreamCaptureInvalidated after an invalidation.
  cudaError_t EndCapture(std::vector<Task>* tasks);
  // If the stream is being captured, makes EndCapture() fail, and returns true.
  bool InvalidateCapture();

  // Marks the stream as destroyed by cudaDeviceReset(). cudaDeviceSynchronize() then doesn't wait
  // for it.
  void MarkReset() { reset_ = true; }
  bool was_reset() const { return reset_; }

 private:
  // `counted`: Query() takes the task into account. Tasks of Synchronize() aren't counted.
  void Push(Task task, bool counted) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Run();
  void Delay();

  const int device_;
  std::minstd_rand random_;  // the thread's
  std::atomic<bool> reset_ = false;
  tensord::Mutex mu_;
  tensord::CondVar changed_;
  std::deque<std::pair<Task, bool>> queue_ ABSL_GUARDED_BY(mu_);  // with `counted`
  int pending_ ABSL_GUARDED_BY(mu_) = 0;  // work and control tasks that are not done
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  bool capturing_ ABSL_GUARDED_BY(mu_) = false;
  bool capture_invalid_ ABSL_GUARDED_BY(mu_) = false;
  std::vector<Task> captured_ ABSL_GUARDED_BY(mu_);
  std::thread thread_;
};

namespace tensord::cuda_emulation {

// If `stream` is the default stream (null), reports that and returns cudaErrorNotSupported.
cudaError_t CheckStream(cudaStream_t stream, absl::string_view call);

}  // namespace tensord::cuda_emulation

// Starts a function that takes a stream: rejects the default stream and uses the device's context.
#define TENSORD_EMULATION_ENTER_STREAM(stream, call)                                          \
  if (const cudaError_t tensord_error = ::tensord::cuda_emulation::CheckStream(stream, call); \
      tensord_error != cudaSuccess)                                                           \
    return tensord_error;                                                                     \
  TENSORD_EMULATION_ENTER((stream)->device())
