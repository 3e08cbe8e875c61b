// Graphs: the tasks that were enqueued in a captured stream, in order.
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tensord/tests/cuda_emulation/control.h"
#include "tensord/tests/cuda_emulation/device.h"
#include "tensord/tests/cuda_emulation/handles.h"
#include "tensord/tests/cuda_emulation/stream.h"

namespace tensord::cuda_emulation {
namespace {

// The tasks of a graph. Both cudaGraph_t and cudaGraphExec_t refer to one.
class TaskList {
 public:
  TaskList(int device, std::vector<Task> tasks) : device_(device), tasks_(std::move(tasks)) {}
  int device() const { return device_; }
  void Run() const {
    for (const Task& task : tasks_) task();
  }

 private:
  const int device_;
  const std::vector<Task> tasks_;
};

HandleTable<cudaGraph_t, const TaskList>& Graphs() {
  static auto* table = new HandleTable<cudaGraph_t, const TaskList>("a graph");
  return *table;
}

HandleTable<cudaGraphExec_t, const TaskList>& Executables() {
  static auto* table = new HandleTable<cudaGraphExec_t, const TaskList>("an executable graph");
  return *table;
}

}  // namespace

void ResetGraphs(int device) {
  Graphs().RemoveAllOf(device);
  Executables().RemoveAllOf(device);
}

size_t LiveGraphs() { return Graphs().size() + Executables().size(); }

}  // namespace tensord::cuda_emulation

using namespace tensord::cuda_emulation;  // NOLINT(google-build-using-namespace)

extern "C" {

cudaError_t cudaStreamBeginCapture(cudaStream_t handle, cudaStreamCaptureMode mode) {
  TENSORD_EMULATION_ENTER_STREAM(stream, handle);
  if (mode != cudaStreamCaptureModeRelaxed) {
    Report("cudaStreamBeginCapture: only cudaStreamCaptureModeRelaxed is emulated");
    return RecordError(cudaErrorNotSupported);
  }
  return RecordError(stream->BeginCapture());
}

cudaError_t cudaStreamEndCapture(cudaStream_t handle, cudaGraph_t* graph) {
  *graph = nullptr;
  StreamRef stream;
  cudaError_t error = FindStream(handle, "cudaStreamEndCapture", &stream);
  if (error != cudaSuccess) return error;
  std::vector<Task> tasks;
  // Ends the capture first, because the next statement may return an error.
  error = stream->EndCapture(&tasks);
  TENSORD_EMULATION_ENTER(stream->device());
  if (error == cudaSuccess) {
    *graph = Graphs().Add(std::make_shared<const TaskList>(stream->device(), std::move(tasks)));
  }
  return RecordError(error);
}

// This is stricter than CUDA: the graph's device must be current.
cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t* executable, cudaGraph_t handle,
                                          unsigned long long /*flags*/) {
  TENSORD_EMULATION_ENTER(CurrentDevice());
  auto graph = Graphs().Find(handle, "cudaGraphInstantiateWithFlags");
  if (graph == nullptr) return RecordError(cudaErrorInvalidValue);
  if (graph->device() != CurrentDevice()) {
    Report(absl::StrCat("cudaGraphInstantiateWithFlags: a graph of device ", graph->device(),
                        " while device ", CurrentDevice(), " is current"));
    return RecordError(cudaErrorInvalidValue);
  }
  *executable = Executables().Add(std::move(graph));
  return cudaSuccess;
}

// This is stricter than CUDA: the stream must belong to the device on which the graph was captured.
cudaError_t cudaGraphLaunch(cudaGraphExec_t handle, cudaStream_t stream_handle) {
  TENSORD_EMULATION_ENTER_STREAM(stream, stream_handle);
  const auto executable = Executables().Find(handle, "cudaGraphLaunch");
  if (executable == nullptr) return RecordError(cudaErrorInvalidValue);
  if (executable->device() != stream->device()) {
    Report(absl::StrCat("cudaGraphLaunch: a graph of device ", executable->device(),
                        " in a stream of device ", stream->device()));
    return RecordError(cudaErrorInvalidValue);
  }
  return RecordError(stream->EnqueueWork([executable] { executable->Run(); }));
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t handle) {
  const bool existed = Executables().Remove(handle, "cudaGraphExecDestroy") != nullptr;
  return RecordError(existed ? cudaSuccess : cudaErrorInvalidValue);
}

cudaError_t cudaGraphDestroy(cudaGraph_t handle) {
  const bool existed = Graphs().Remove(handle, "cudaGraphDestroy") != nullptr;
  return RecordError(existed ? cudaSuccess : cudaErrorInvalidValue);
}

}  // extern "C"
