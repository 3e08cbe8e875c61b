// Graphs: the tasks that were enqueued in a captured stream, in order.
#include <memory>
#include <utility>
#include <vector>

#include "tensord/tests/cuda_emulation/control.h"
#include "tensord/tests/cuda_emulation/device.h"
#include "tensord/tests/cuda_emulation/stream.h"

using namespace tensord::cuda_emulation;  // NOLINT(google-build-using-namespace)

// The names are cudart's.
struct CUgraph_st {
  std::vector<Task> tasks;
};
struct CUgraphExec_st {
  std::shared_ptr<const std::vector<Task>> tasks;  // launches that run keep them
};

extern "C" {

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
  TENSORD_EMULATION_ENTER_STREAM(stream, "cudaStreamBeginCapture");
  if (mode != cudaStreamCaptureModeRelaxed) {
    Report("cudaStreamBeginCapture: only cudaStreamCaptureModeRelaxed is emulated");
    return RecordError(cudaErrorNotSupported);
  }
  return RecordError(stream->BeginCapture());
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  *graph = nullptr;
  TENSORD_EMULATION_ENTER_STREAM(stream, "cudaStreamEndCapture");
  std::vector<Task> tasks;
  const cudaError_t error = stream->EndCapture(&tasks);
  if (error == cudaSuccess) *graph = new CUgraph_st{std::move(tasks)};
  return RecordError(error);
}

cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t* executable, cudaGraph_t graph,
                                          unsigned long long /*flags*/) {
  TENSORD_EMULATION_ENTER(CurrentDevice());
  *executable = new CUgraphExec_st{std::make_shared<const std::vector<Task>>(graph->tasks)};
  return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream) {
  TENSORD_EMULATION_ENTER_STREAM(stream, "cudaGraphLaunch");
  return RecordError(stream->EnqueueWork([tasks = executable->tasks] {
    for (const Task& task : *tasks) task();
  }));
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
  delete executable;
  return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete graph;
  return cudaSuccess;
}

}  // extern "C"
