// The ops cumsum and cumprod.
#include <algorithm>
#include <optional>

#include "tensord/common/util/status_macros.h"
#include "tensord/server/device/cuda/kernel_table.h"
#include "tensord/server/device/cuda/kernels/scan.h"

namespace tensord::server::cuda {
namespace {

constexpr int64_t kMinExtentForBlocks = 64;  // shorter lines would leave most threads idle
constexpr int64_t kMinChunkOfThread = 64;
constexpr int64_t kMinChunkOfBlock = 2048;
constexpr int64_t kScanBlocksPerMultiprocessor = 8;

int64_t PartsOf(int64_t n, int64_t part) { return (n + part - 1) / part; }

// Sets `blocks`, `chunks` and `chunk` for a GPU with this number of multiprocessors.
void PlanScan(ScanJob& job, int multiprocessors) {
  job.blocks = job.inner == 1 && job.extent >= kMinExtentForBlocks;
  const int64_t lines = job.outer * job.inner;
  const int64_t blocks = job.blocks ? lines : PartsOf(lines, kThreads);
  const int64_t wanted = PartsOf(kScanBlocksPerMultiprocessor * multiprocessors, blocks);
  const int64_t least = job.blocks ? kMinChunkOfBlock : kMinChunkOfThread;
  const int64_t chunks =
      std::clamp(std::min(wanted, PartsOf(job.extent, least)), int64_t{1}, int64_t{kMaxScanChunks});
  job.chunk = PartsOf(PartsOf(job.extent, chunks), least) * least;
  job.chunks = static_cast<int>(PartsOf(job.extent, job.chunk));
}

absl::Status RunScan(const ScanKernel& kernel, const KernelCall& call, KernelContext& context) {
  const TensorSpec& spec = *call.output().spec;
  if (spec.num_elements() == 0) return absl::OkStatus();
  const ScanLauncher launch = kernel.by_dtype[DTypeNumber(call.output())];
  if (launch == nullptr) return NoKernelError(call);
  ScanJob job;
  job.in = call.inputs[0].data;
  job.out = call.output().data;
  const int axis = static_cast<int>(call.attrs->Int("axis"));  // 0 for a scalar
  for (int d = 0; d < spec.shape.rank(); ++d) {
    (d < axis ? job.outer : d == axis ? job.extent : job.inner) *= spec.shape.dim(d);
  }
  job.exclusive = call.attrs->Bool("exclusive");
  job.reverse = call.attrs->Bool("reverse");
  PlanScan(job, context.multiprocessors);
  std::optional<Scratch> carries;
  if (job.chunks > 1) {
    TENSORD_ASSIGN_OR_RETURN(
        carries, MakeScratch(context, job.outer * job.inner * job.chunks * kCarryBytes));
    job.carries = carries->data();
  }
  return LaunchStatus(call, launch(job, context.stream));
}

}  // namespace

void AppendScanKernels(KernelTable& table) {
  for (const ScanKernel& kernel : ScanKernels()) {
    table[kernel.op] = [&kernel](const KernelCall& call, KernelContext& context) {
      return RunScan(kernel, call, context);
    };
  }
}

}  // namespace tensord::server::cuda
