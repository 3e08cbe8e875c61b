// The CUDA kernels by the names of their ops.
#pragma once

#include <cuda_runtime_api.h>

#include <functional>
#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "tensord/server/device/cuda/blas.h"
#include "tensord/server/device/cuda/dnn.h"
#include "tensord/server/device/cuda/memory_pool.h"
#include "tensord/server/device/device.h"
#include "tensord/server/device/scratch_memory.h"

namespace tensord::server::cuda {

class GraphScratch;

// The parts of a device that a kernel uses. The device must be current.
struct KernelContext {
  cudaStream_t stream = nullptr;
  int multiprocessors = 1;
  MemoryPool* pool = nullptr;
  Blas* blas = nullptr;
  Dnn* dnn = nullptr;
  GraphScratch* graph_scratch = nullptr;  // not null while the work on `stream` is captured
  const KernelCall* call = nullptr;       // the op that is launched
};

// Memory for kernels that the caller launches while it holds the object. It is freed in stream
// order.
class Scratch {
 public:
  Scratch(Scratch&& other) noexcept { *this = std::move(other); }
  Scratch& operator=(Scratch&& other) noexcept;
  ~Scratch();

  void* data() const { return data_; }

 private:
  friend absl::StatusOr<Scratch> MakeScratch(KernelContext& context, int64_t bytes);

  Scratch() = default;

  void* data_ = nullptr;
  MemoryPool* pool_ = nullptr;  // the owner of a small block, otherwise null
  int64_t bytes_ = 0;
  cudaStream_t stream_ = nullptr;
  ScratchMemory memory_;  // of a block that is charged
};

// Returns scratch memory for kernels of context.call. `bytes` > 0. Blocks of at most
// kMaxUnchargedBytes come from the pool. Larger ones are charged as ScratchMemory is, with the same
// errors. While the work is captured, the memory comes from context.graph_scratch.
absl::StatusOr<Scratch> MakeScratch(KernelContext& context, int64_t bytes);

// Enqueues the op on the context's stream. If the output has no elements, does nothing.
using Kernel = std::function<absl::Status(const KernelCall& call, KernelContext& context)>;
using KernelTable = absl::flat_hash_map<std::string, Kernel>;

// Returns the kernel of an op. If there is none, returns null. `constant` has none, because the
// engine writes its bytes. Thread-safe.
const Kernel* FindKernel(absl::string_view op);

// Each function adds the kernels of one family. kernel_table.cc calls all of them.
void AppendAdamKernels(KernelTable& table);
void AppendAttentionKernels(KernelTable& table);
void AppendElementwiseKernels(KernelTable& table);
void AppendIndexingKernels(KernelTable& table);
void AppendMovementKernels(KernelTable& table);
void AppendConvKernels(KernelTable& table);
void AppendCreationKernels(KernelTable& table);
void AppendPoolKernels(KernelTable& table);
void AppendRandomKernels(KernelTable& table);
void AppendReductionKernels(KernelTable& table);
void AppendScanKernels(KernelTable& table);
void AppendMatmulKernels(KernelTable& table);
void AppendNetworkKernels(KernelTable& table);
void AppendRecurrentKernels(KernelTable& table);
void AppendSortKernels(KernelTable& table);

// Returns OK, or the error of a launch with the name of the op.
absl::Status LaunchStatus(const KernelCall& call, cudaError_t error);

// Adds the op and its first two operands to an error of a library, which names neither.
absl::Status WithOperands(const KernelCall& call, const absl::Status& status);

// Returns INTERNAL: inference accepted a combination of dtypes that has no kernel.
absl::Status NoKernelError(const KernelCall& call);

inline int DTypeNumber(DType dtype) { return static_cast<int>(dtype); }
inline int DTypeNumber(const Operand& operand) { return DTypeNumber(operand.spec->dtype); }

}  // namespace tensord::server::cuda
