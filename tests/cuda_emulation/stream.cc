#include "tensord/tests/cuda_emulation/stream.h"

#include <atomic>
#include <chrono>
#include <memory>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tensord/tests/cuda_emulation/control.h"
#include "tensord/tests/cuda_emulation/handles.h"
#include "tensord/tests/cuda_emulation/kernel.h"
#include "tensord/tests/cuda_emulation/memory_pool.h"

namespace tensord::cuda_emulation {
namespace {

thread_local Stream* current_stream = nullptr;

HandleTable<cudaStream_t, Stream>& Streams() {
  static auto* table = new HandleTable<cudaStream_t, Stream>("a stream");  // never destroyed
  return *table;
}

}  // namespace

std::shared_ptr<Stream> Stream::Start(int device) {
  InstallFaultHandler();
  static std::atomic<unsigned> seed = 1;
  auto stream = std::make_shared<Stream>(device, seed++);
  stream->thread_ = std::thread([stream] { stream->Run(); });
  return stream;
}

void Stream::Stop() {
  {
    MutexLock lock(&mu_);
    stopping_ = true;
    changed_.SignalAll();
  }
  thread_.join();
}

void Stream::Reset() {
  reset_ = true;
  MutexLock lock(&mu_);
  stopping_ = true;
  changed_.SignalAll();
  thread_.detach();
}

Stream* Stream::Current() { return current_stream; }

void Stream::Push(Task task, bool counted) {
  queue_.emplace_back(std::move(task), counted);
  pending_ += counted ? 1 : 0;
  changed_.SignalAll();
}

cudaError_t Stream::EnqueueWork(Task task) {
  MutexLock lock(&mu_);
  if (stopping_) return cudaErrorInvalidResourceHandle;
  Task work = [device = device_, task = std::move(task)] {
    if (StickyError(device) == cudaSuccess && !Current()->was_reset()) task();
  };
  if (capturing_) {
    captured_.push_back(std::move(work));
  } else {
    Push(std::move(work), /*counted=*/true);
  }
  return cudaSuccess;
}

cudaError_t Stream::EnqueueControl(Task task, absl::string_view call) {
  MutexLock lock(&mu_);
  if (stopping_) return cudaErrorInvalidResourceHandle;
  if (capturing_) {
    capture_invalid_ = true;
    Report(absl::StrCat(call, " on a stream that is captured"));
    return cudaErrorStreamCaptureUnsupported;
  }
  Push(std::move(task), /*counted=*/true);
  return cudaSuccess;
}

void Stream::Synchronize() {
  auto flag = std::make_shared<Flag>();
  {
    MutexLock lock(&mu_);
    if (stopping_) return;
    Push([flag] { flag->Set(); }, /*counted=*/false);
  }
  flag->Wait();
}

cudaError_t Stream::Query() {
  MutexLock lock(&mu_);
  if (capturing_) {
    capture_invalid_ = true;
    return cudaErrorStreamCaptureUnsupported;
  }
  return pending_ == 0 ? cudaSuccess : cudaErrorNotReady;
}

cudaError_t Stream::BeginCapture() {
  MutexLock lock(&mu_);
  if (capturing_) return cudaErrorIllegalState;
  capturing_ = true;
  capture_invalid_ = false;
  captured_.clear();
  return cudaSuccess;
}

cudaError_t Stream::EndCapture(std::vector<Task>* tasks) {
  MutexLock lock(&mu_);
  if (!capturing_) return cudaErrorIllegalState;
  capturing_ = false;
  *tasks = std::exchange(captured_, {});
  return capture_invalid_ ? cudaErrorStreamCaptureInvalidated : cudaSuccess;
}

bool Stream::InvalidateCapture() {
  MutexLock lock(&mu_);
  capture_invalid_ |= capturing_;
  return capturing_;
}

void Stream::Delay() {
  const int max_delay_us = TheOptions().max_delay_us;
  if (max_delay_us == 0) return;
  std::this_thread::sleep_for(std::chrono::microseconds(random_() % max_delay_us));
}

void Stream::Run() {
  const FaultHandling faults;
  current_stream = this;
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

cudaError_t SynchronizeDevice(int device) {
  const std::vector<StreamRef> streams = Streams().ObjectsOf(device);
  for (const StreamRef& stream : streams) {
    if (!stream->InvalidateCapture()) continue;
    Report("a call waits for a device while one of its streams is captured");
    return cudaErrorStreamCaptureUnsupported;  // what CUDA documents for a capture in any stream
  }
  for (const StreamRef& stream : streams) stream->Synchronize();
  ReleaseUnusedMemory(device);
  return StickyError(device);
}

void AwaitStreams(int device) {
  for (const StreamRef& stream : Streams().ObjectsOf(device)) stream->Synchronize();
}

void ResetStreams(int device) {
  for (const StreamRef& stream : Streams().RemoveAllOf(device)) stream->Reset();
}

size_t LiveStreams() { return Streams().size(); }

cudaError_t FindStream(cudaStream_t handle, const char* call, StreamRef* stream) {
  if (handle == nullptr) {
    Report(absl::StrCat(call, ": the default stream is not emulated"));
    return RecordError(cudaErrorNotSupported);
  }
  *stream = Streams().Find(handle, call);
  return RecordError(*stream == nullptr ? cudaErrorInvalidResourceHandle : cudaSuccess);
}

cudaError_t UseStream(cudaStream_t handle, const char* call, StreamRef* stream) {
  const cudaError_t error = FindStream(handle, call, stream);
  return error == cudaSuccess ? UseContext((*stream)->device(), call) : error;
}

}  // namespace tensord::cuda_emulation

using namespace tensord::cuda_emulation;  // NOLINT(google-build-using-namespace)

extern "C" {

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  TENSORD_EMULATION_ENTER(CurrentDevice());
  if (flags != cudaStreamNonBlocking) {
    Report("cudaStreamCreateWithFlags: only cudaStreamNonBlocking is emulated");
    return RecordError(cudaErrorNotSupported);
  }
  *stream = Streams().Add(Stream::Start(CurrentDevice()));
  return cudaSuccess;
}

// Blocks until all queued tasks have run. CUDA's function returns at once.
cudaError_t cudaStreamDestroy(cudaStream_t handle) {
  const StreamRef stream = Streams().Remove(handle, "cudaStreamDestroy");
  if (stream == nullptr) return RecordError(cudaErrorInvalidResourceHandle);
  stream->Stop();
  return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t handle) {
  TENSORD_EMULATION_ENTER_STREAM(stream, handle);
  if (stream->InvalidateCapture()) {
    Report("cudaStreamSynchronize on a stream that is captured");
    return RecordError(cudaErrorStreamCaptureUnsupported);
  }
  stream->Synchronize();
  ReleaseUnusedMemory(stream->device());
  return RecordError(StickyError(stream->device()));
}

cudaError_t cudaStreamQuery(cudaStream_t handle) {
  TENSORD_EMULATION_ENTER_STREAM(stream, handle);
  return RecordError(stream->Query());
}

cudaError_t cudaLaunchHostFunc(cudaStream_t handle, cudaHostFn_t function, void* data) {
  TENSORD_EMULATION_ENTER_STREAM(stream, handle);
  return RecordError(stream->EnqueueWork([=] { function(data); }));
}

}  // extern "C"
