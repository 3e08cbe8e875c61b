// The CUDA kernels by the names of their ops.
#pragma once

#include <cuda_runtime_api.h>

#include <functional>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "tensord/server/device/cuda/blas.h"
#include "tensord/server/device/cuda/memory_pool.h"
#include "tensord/server/device/device.h"

namespace tensord::server::cuda {

class GraphScratch;

// What a kernel has of its device, which is the current one.
struct KernelContext {
  cudaStream_t stream = nullptr;
  int multiprocessors = 1;
  MemoryPool* pool = nullptr;
  Blas* blas = nullptr;
  GraphScratch* graph_scratch = nullptr;  // set while what goes to the stream is captured
};

// Memory for the time of the kernels that are being launched.
absl::StatusOr<Scratch> MakeScratch(KernelContext& context, int64_t bytes);

// Enqueues the op on the context's stream. An output without elements is left alone.
using Kernel = std::function<absl::Status(const KernelCall& call, KernelContext& context)>;
using KernelTable = absl::flat_hash_map<std::string, Kernel>;

// Null where there is none, as for constant, whose bytes the engine writes. Thread-safe.
const Kernel* FindKernel(absl::string_view op);

// Each adds the kernels of one family; all are in kernel_table.cc's list.
void AppendElementwiseKernels(KernelTable& table);
void AppendMovementKernels(KernelTable& table);
void AppendCreationKernels(KernelTable& table);
void AppendReductionKernels(KernelTable& table);
void AppendMatmulKernels(KernelTable& table);

// The error of a launch, with the op.
absl::Status LaunchStatus(const KernelCall& call, cudaError_t error);

// INTERNAL: inference let a combination of dtypes through that no kernel was compiled for.
absl::Status NoKernelError(const KernelCall& call);

inline int DTypeNumber(DType dtype) { return static_cast<int>(dtype); }
inline int DTypeNumber(const Operand& operand) { return DTypeNumber(operand.spec->dtype); }

}  // namespace tensord::server::cuda
