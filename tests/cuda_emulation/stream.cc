#include "tensord/tests/cuda_emulation/stream.h"

#include <atomic>
#include <chrono>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tensord/tests/cuda_emulation/control.h"
#include "tensord/tests/cuda_emulation/device.h"
#include "tensord/tests/cuda_emulation/kernel.h"

using tensord::MutexLock;
using namespace tensord::cuda_emulation;  // NOLINT(google-build-using-namespace)

CUstream_st::CUstream_st(int device, unsigned seed)
    : device_(device), random_(seed), thread_([this] { Run(); }) {}

CUstream_st::~CUstream_st() {
  {
    MutexLock lock(&mu_);
    stopping_ = true;
    changed_.SignalAll();
  }
  thread_.join();
}

void CUstream_st::Push(Task task, bool counted) {
  queue_.emplace_back(std::move(task), counted);
  pending_ += counted ? 1 : 0;
  changed_.SignalAll();
}

cudaError_t CUstream_st::EnqueueWork(Task task) {
  MutexLock lock(&mu_);
  Task work = [device = device_, task = std::move(task)] {
    if (StickyError(device) == cudaSuccess) task();
  };
  if (capturing_) {
    captured_.push_back(std::move(work));
  } else {
    Push(std::move(work), /*counted=*/true);
  }
  return cudaSuccess;
}

cudaError_t CUstream_st::EnqueueControl(Task task, absl::string_view call) {
  MutexLock lock(&mu_);
  if (capturing_) {
    capture_invalid_ = true;
    Report(absl::StrCat(call, " on a stream that is captured"));
    return cudaErrorStreamCaptureUnsupported;
  }
  Push(std::move(task), /*counted=*/true);
  return cudaSuccess;
}

void CUstream_st::Synchronize() {
  auto flag = std::make_shared<Flag>();
  {
    MutexLock lock(&mu_);
    Push([flag] { flag->Set(); }, /*counted=*/false);
  }
  flag->Wait();
}

cudaError_t CUstream_st::Query() {
  MutexLock lock(&mu_);
  if (capturing_) {
    capture_invalid_ = true;
    return cudaErrorStreamCaptureUnsupported;
  }
  return pending_ == 0 ? cudaSuccess : cudaErrorNotReady;
}

cudaError_t CUstream_st::BeginCapture() {
  MutexLock lock(&mu_);
  if (capturing_) return cudaErrorIllegalState;
  capturing_ = true;
  capture_invalid_ = false;
  captured_.clear();
  return cudaSuccess;
}

cudaError_t CUstream_st::EndCapture(std::vector<Task>* tasks) {
  MutexLock lock(&mu_);
  if (!capturing_) return cudaErrorIllegalState;
  capturing_ = false;
  *tasks = std::exchange(captured_, {});
  return capture_invalid_ ? cudaErrorStreamCaptureInvalidated : cudaSuccess;
}

bool CUstream_st::InvalidateCapture() {
  MutexLock lock(&mu_);
  capture_invalid_ |= capturing_;
  return capturing_;
}

void CUstream_st::Delay() {
  const int max_delay_us = TheOptions().max_delay_us;
  if (max_delay_us == 0) return;
  std::this_thread::sleep_for(std::chrono::microseconds(random_() % max_delay_us));
}

void CUstream_st::Run() {
  const FaultHandling faults;
  bool counted = false;  // the task that has run
  while (true) {
    Task task;
    {
      MutexLock lock(&mu_);
      pending_ -= counted ? 1 : 0;
      while (!stopping_ && queue_.empty()) changed_.Wait(&mu_);
      if (queue_.empty()) return;
      std::tie(task, counted) = std::move(queue_.front());
      queue_.pop_front();
    }
    Delay();
    task();
  }
}

namespace tensord::cuda_emulation {

cudaError_t CheckStream(cudaStream_t stream, absl::string_view call) {
  if (stream != nullptr) return cudaSuccess;
  Report(absl::StrCat(call, ": the default stream is not emulated"));
  return RecordError(cudaErrorNotSupported);
}

}  // namespace tensord::cuda_emulation

extern "C" {

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  TENSORD_EMULATION_ENTER(CurrentDevice());
  if (flags != cudaStreamNonBlocking) {
    Report("cudaStreamCreateWithFlags: only cudaStreamNonBlocking is emulated");
    return RecordError(cudaErrorNotSupported);
  }
  static std::atomic<unsigned> seed = 1;
  auto made = std::make_shared<CUstream_st>(CurrentDevice(), seed++);
  *stream = made.get();
  Device& d = DeviceAt(CurrentDevice());
  MutexLock lock(&d.mu);
  d.streams[*stream] = std::move(made);
  return cudaSuccess;
}

// Blocks until all queued tasks have run. CUDA's function returns at once.
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  Device& d = DeviceAt(stream->device());
  std::shared_ptr<CUstream_st> last;  // destroyed after the lock is released: its tasks may take it
  MutexLock lock(&d.mu);
  std::swap(last, d.streams[stream]);
  d.streams.erase(stream);
  return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  TENSORD_EMULATION_ENTER_STREAM(stream, "cudaStreamSynchronize");
  if (stream->InvalidateCapture()) {
    Report("cudaStreamSynchronize on a stream that is captured");
    return RecordError(cudaErrorStreamCaptureUnsupported);
  }
  stream->Synchronize();
  return RecordError(StickyError(stream->device()));
}

cudaError_t cudaStreamQuery(cudaStream_t stream) {
  TENSORD_EMULATION_ENTER_STREAM(stream, "cudaStreamQuery");
  return RecordError(stream->Query());
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* data) {
  TENSORD_EMULATION_ENTER_STREAM(stream, "cudaLaunchHostFunc");
  return RecordError(stream->EnqueueWork([=] { function(data); }));
}

}  // extern "C"
