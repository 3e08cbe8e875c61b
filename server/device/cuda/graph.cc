// Kernels that are captured once and launched as one.
//
// The capture mode is relaxed: it forbids no call on any thread. Two things would still abort a
// capture, and both are prevented. No other code uses the capturing stream
// (cuda_device_internal.h). No thread synchronizes with the whole GPU during a capture
// (CaptureLock). Beside launches, the capturing thread only allocates memory, on the compute
// stream, which isn't captured.
//
// Each kernel has run at least once with the same shapes before a capture. So its code is loaded,
// cuBLASLt has chosen its algorithms, and cuDNN's plans are made. Products in a graph use the same
// workspace as other products. That is safe, because graphs run on the compute stream, where all
// work runs in order.
#include <utility>

#include "tensord/common/util/status_macros.h"
#include "tensord/server/device/cuda/cuda_device_internal.h"
#include "tensord/server/device/cuda/cuda_status.h"
#include "tensord/server/device/cuda/graph_scratch.h"

namespace tensord::server::cuda {
namespace {

class CudaGraph final : public KernelGraph {
 public:
  CudaGraph(CudaDevice* device, cudaGraphExec_t graph, std::vector<BufferRef> scratch)
      : device_(device), scratch_(std::move(scratch)), graph_(graph) {}
  // Destroys the graph before its memory. The memory is freed in the order of the compute stream.
  ~CudaGraph() override { device_->DestroyGraph(graph_); }

  absl::Status Launch(absl::Span<const Buffer* const> inputs) override {
    return device_->LaunchGraph(graph_, inputs);
  }

  bool lost() const override { return device_->loss() != nullptr; }

 private:
  CudaDevice* const device_;
  const std::vector<BufferRef> scratch_;
  const cudaGraphExec_t graph_;
};

}  // namespace

absl::StatusOr<Graph> CudaDevice::Record(absl::FunctionRef<absl::Status()> launch,
                                         GraphScratch* scratch) {
  const CaptureLock lock(info_.physical_index);
  TENSORD_CUDA_RETURN_IF_ERROR(
      cudaStreamBeginCapture(capture_.get(), cudaStreamCaptureModeRelaxed));
  context_.stream = capture_.get();
  context_.graph_scratch = scratch;
  blas_->SetStream(capture_.get());
  dnn_->SetStream(capture_.get());
  const absl::Status launched = launch();
  dnn_->SetStream(compute_.get());
  blas_->SetStream(compute_.get());
  context_.graph_scratch = nullptr;
  context_.stream = compute_.get();
  // Ends the capture also after an error. Until then the stream can't be used otherwise. If the
  // capture was aborted, there is no graph.
  cudaGraph_t recorded = nullptr;
  const cudaError_t ended = cudaStreamEndCapture(capture_.get(), &recorded);
  Graph graph(recorded);
  TENSORD_RETURN_IF_ERROR(launched);
  TENSORD_CUDA_RETURN_IF_ERROR(ended);
  return graph;
}

absl::StatusOr<std::unique_ptr<KernelGraph>> CudaDevice::Capture(
    MemoryAccount& account, absl::FunctionRef<absl::Status()> launch) {
  const CallTracker::Call call(&calls_);
  if (!call.admitted()) return *loss();
  const DeviceGuard guard(info_.physical_index);
  GraphScratch scratch(&account, this);
  TENSORD_ASSIGN_OR_RETURN(const Graph graph, Record(launch, &scratch));
  cudaGraphExec_t executable = nullptr;
  TENSORD_CUDA_RETURN_IF_ERROR(cudaGraphInstantiateWithFlags(&executable, graph.get(), 0));
  return std::make_unique<CudaGraph>(this, executable, scratch.ReleaseMemory());
}

absl::Status CudaDevice::LaunchGraph(cudaGraphExec_t graph,
                                     absl::Span<const Buffer* const> inputs) {
  const CallTracker::Call call(&calls_);
  if (!call.admitted()) return *loss();
  const DeviceGuard guard(info_.physical_index);
  for (const Buffer* input : inputs) {
    TENSORD_RETURN_IF_ERROR(OrderInput(input->data(), input->size_bytes()));
  }
  TENSORD_CUDA_RETURN_IF_ERROR(cudaGraphLaunch(graph, compute_.get()));
  return absl::OkStatus();
}

void CudaDevice::DestroyGraph(cudaGraphExec_t graph) {
  const CallTracker::Call call(&calls_);
  if (!call.admitted()) return;  // the reset of the context destroys the graph
  const DeviceGuard guard(info_.physical_index);
  // If a launch of the graph still runs, the driver frees the graph after it.
  if (cudaGraphExecDestroy(graph) != cudaSuccess) cudaGetLastError();
}

}  // namespace tensord::server::cuda
