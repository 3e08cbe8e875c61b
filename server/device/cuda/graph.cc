// Kernels captured once, and launched as one.
//
// Capturing is relaxed: it forbids no thread any call. What would break it off all the same is seen
// to: the stream is nobody else's (cuda_device_internal.h), and nobody waits for the GPU as a whole
// meanwhile (CaptureLock). The one thing that the capturing thread itself does beside launching is
// to take memory, on the compute stream, which isn't captured.
//
// What a capture needs is there before: kernels have run at least once with these very shapes, so
// that their code is loaded and cuBLASLt has chosen its algorithms. Products work in the workspace
// that they always have: graphs run on the compute stream, one after another with all else there.
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
  // Before its memory, which is freed behind what is running on the compute stream.
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
  const absl::Status launched = launch();
  blas_->SetStream(compute_.get());
  context_.graph_scratch = nullptr;
  context_.stream = compute_.get();
  // Ended in any case: until then the stream takes nothing else. Where the capture was broken off
  // it gives no graph.
  cudaGraph_t recorded = nullptr;
  const cudaError_t ended = cudaStreamEndCapture(capture_.get(), &recorded);
  Graph graph(recorded);
  TENSORD_RETURN_IF_ERROR(launched);
  TENSORD_CUDA_RETURN_IF_ERROR(ended);
  return graph;
}

absl::StatusOr<std::unique_ptr<KernelGraph>> CudaDevice::Capture(
    MemoryAccount& account, absl::FunctionRef<absl::Status()> launch) {
  const CallGate::Entry entry(&gate_);
  if (!entry.entered()) return *loss();
  const DeviceGuard guard(info_.physical_index);
  GraphScratch scratch(&account, this);
  TENSORD_ASSIGN_OR_RETURN(const Graph graph, Record(launch, &scratch));
  cudaGraphExec_t executable = nullptr;
  TENSORD_CUDA_RETURN_IF_ERROR(cudaGraphInstantiateWithFlags(&executable, graph.get(), 0));
  return std::make_unique<CudaGraph>(this, executable, scratch.ReleaseMemory());
}

absl::Status CudaDevice::LaunchGraph(cudaGraphExec_t graph,
                                     absl::Span<const Buffer* const> inputs) {
  const CallGate::Entry entry(&gate_);
  if (!entry.entered()) return *loss();
  const DeviceGuard guard(info_.physical_index);
  for (const Buffer* input : inputs) {
    TENSORD_RETURN_IF_ERROR(OrderInput(input->data(), input->size_bytes()));
  }
  TENSORD_CUDA_RETURN_IF_ERROR(cudaGraphLaunch(graph, compute_.get()));
  return absl::OkStatus();
}

void CudaDevice::DestroyGraph(cudaGraphExec_t graph) {
  const CallGate::Entry entry(&gate_);
  if (!entry.entered()) return;  // it went with the context
  const DeviceGuard guard(info_.physical_index);
  // What runs is freed when it is over.
  if (cudaGraphExecDestroy(graph) != cudaSuccess) cudaGetLastError();
}

}  // namespace tensord::server::cuda
