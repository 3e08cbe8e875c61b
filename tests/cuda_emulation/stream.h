// A stream: a queue of tasks and a thread that runs them in order.
#pragma once

#include <cuda_runtime_api.h>

#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "tensord/common/util/mutex.h"
#include "tensord/tests/cuda_emulation/device.h"
#include "tensord/tests/cuda_emulation/flag.h"

namespace tensord::cuda_emulation {

using Task = std::function<void()>;

// A queue of tasks, and a thread that runs them in order. All member functions are thread-safe. A
// task may call only device(), was_reset() and Current(). The thread keeps the object alive until
// the thread ends.
class Stream {
 public:
  // Creates a stream on `device`, and starts its thread.
  static std::shared_ptr<Stream> Start(int device);

  // Doesn't start the thread. Call Start() instead.
  Stream(int device, unsigned seed) : device_(device), random_(seed) {}

  int device() const { return device_; }

  // Enqueues a kernel, copy, graph or host function. If the stream is being captured, records the
  // task instead. When the stream reaches the task, it skips it if the device has a sticky error or
  // has been reset. Returns cudaErrorInvalidResourceHandle if the stream is destroyed.
  cudaError_t EnqueueWork(Task task);

  // Enqueues a task of another kind. It runs even after a sticky error or a reset. If the stream is
  // being captured, prints a report that names `call`, invalidates the capture and returns
  // cudaErrorStreamCaptureUnsupported.
  // Returns cudaErrorInvalidResourceHandle if the stream is destroyed.
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

  // Rejects further tasks, blocks until all queued tasks have run, and ends the thread. Call either
  // Stop() or Reset(), once.
  void Stop();
  // cudaDeviceReset() calls this. Rejects further tasks, and skips work that is queued. Doesn't
  // wait for the task that is running; its faults are no longer reported.
  void Reset();
  bool was_reset() const { return reset_; }

  // Returns the stream whose thread calls this function. Returns null on other threads.
  static Stream* Current();

 private:
  // `counted` says that Query() takes the task into account. Tasks of Synchronize() aren't counted.
  void Push(Task task, bool counted) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Run();
  void Delay();

  const int device_;
  std::minstd_rand random_;  // the thread's
  std::atomic<bool> reset_ = false;
  Mutex mu_;
  CondVar changed_;
  std::deque<std::pair<Task, bool>> queue_ ABSL_GUARDED_BY(mu_);  // with `counted`
  int pending_ ABSL_GUARDED_BY(mu_) = 0;  // work and control tasks that are not done
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  bool capturing_ ABSL_GUARDED_BY(mu_) = false;
  bool capture_invalid_ ABSL_GUARDED_BY(mu_) = false;
  std::vector<Task> captured_ ABSL_GUARDED_BY(mu_);
  std::thread thread_;
};
using StreamRef = std::shared_ptr<Stream>;

// Blocks until the device's streams have run all tasks that are enqueued now. Unlike
// SynchronizeDevice(), may be called during a capture.
void AwaitStreams(int device);

// Stores the stream of `handle` in `stream`. If there is none, prints a report that names `call`,
// and records and returns an error: cudaErrorNotSupported for the default stream (null),
// cudaErrorInvalidResourceHandle otherwise.
cudaError_t FindStream(cudaStream_t handle, const char* call, StreamRef* stream);

// The function `call`, which takes a stream, calls this first. Calls FindStream(), then
// UseContext() for the stream's device.
cudaError_t UseStream(cudaStream_t handle, const char* call, StreamRef* stream);

}  // namespace tensord::cuda_emulation

// The first statement of a function that takes the stream `handle`. Declares `stream`, a StreamRef.
// If UseStream() fails, returns its error from the function.
#define TENSORD_EMULATION_ENTER_STREAM(stream, handle)                     \
  ::tensord::cuda_emulation::StreamRef stream;                             \
  if (const cudaError_t tensord_error =                                    \
          ::tensord::cuda_emulation::UseStream(handle, __func__, &stream); \
      tensord_error != cudaSuccess)                                        \
  return tensord_error
