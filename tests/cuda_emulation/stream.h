// A stream: a queue of tasks and a thread that runs them in order.
#pragma once

#include <cuda_runtime_api.h>

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
  // Runs what is queued, then returns.
  ~CUstream_st();

  int device() const { return device_; }

  // Kernels, copies and graphs: recorded while the stream is captured, and skipped if the context
  // is lost by the time that the stream reaches them.
  cudaError_t EnqueueWork(Task task);

  // Everything else: not allowed while the stream is captured, which invalidates the capture.
  // Always run.
  cudaError_t EnqueueControl(Task task, absl::string_view call);

  // Blocks until the tasks that are queued now are done.
  void Synchronize();

  // cudaSuccess if no work or control task is queued or running, else cudaErrorNotReady.
  cudaError_t Query();

  cudaError_t BeginCapture();
  // Moves the recorded tasks to `tasks`.
  cudaError_t EndCapture(std::vector<Task>* tasks);
  // If the stream is captured, makes EndCapture() fail, and returns true.
  bool InvalidateCapture();

 private:
  // A task of Synchronize() is not `counted`: it runs when those before it are done.
  void Push(Task task, bool counted) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Run();
  void Delay();

  const int device_;
  std::minstd_rand random_;  // the thread's
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

// cudaErrorNotSupported, reported, for the default stream, which is not emulated.
cudaError_t CheckStream(cudaStream_t stream, absl::string_view call);

}  // namespace tensord::cuda_emulation

// At the start of a function on a stream: checks the stream, and enters its device's context.
#define TENSORD_EMULATION_ENTER_STREAM(stream, call)                                          \
  if (const cudaError_t tensord_error = ::tensord::cuda_emulation::CheckStream(stream, call); \
      tensord_error != cudaSuccess)                                                           \
    return tensord_error;                                                                     \
  TENSORD_EMULATION_ENTER((stream)->device())
