// Launchers of reductions over any axes, and of softmax.
//
// A block of kThreads threads is a tile of outputs x lanes. The lanes of an output share its
// elements and combine their results in a tree in shared memory. The tree is fixed, so the same
// input always gives the same bits.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <span>

#include "tensord/server/device/cuda/kernels/dispatch.h"
#include "tensord/server/device/cuda/kernels/strided_loop.h"

namespace tensord::server::cuda {

struct ReduceTile {
  int lanes_log2 = 0;  // each output has 2^lanes_log2 threads
  // If true, neighbouring threads are lanes of one output, whose elements lie close together.
  // Otherwise neighbouring threads belong to neighbouring outputs, whose elements lie close
  // together.
  bool lanes_fast = true;
  // The number of blocks that share an output. A second pass combines their results.
  int splits = 1;
  int64_t chunk = 0;  // the number of elements of an output that one block takes
};

// Returns good tiles for `outputs` results of `reduced` elements each, on a GPU with this number of
// multiprocessors. A lane loads `width` elements of an output at a time. `chunk` is a multiple of
// `width`.
ReduceTile PlanReduceTile(int64_t outputs, int64_t reduced, bool lanes_fast, int multiprocessors,
                          int width = 1);

// Returns the number of neighbouring outputs that one thread computes if it loads their elements as
// packs. More than 4 accumulators would reduce occupancy.
constexpr int ReduceColumns(int64_t element_bytes) {
  return static_cast<int>(element_bytes >= 4 ? 16 / element_bytes : 4);
}

struct ReduceJob {
  const void* in = nullptr;
  void* out = nullptr;
  StridedLoop<1> kept;  // from the index of an output to its first element
  StridedLoop<1> over;  // from the row-major index in the reduced axes to an offset from kept's
  ReduceTile tile;
  // True if threads load packs. With lanes_fast, a pack is 16 bytes of one output. The innermost
  // reduced axis then has stride 1. Either it is the only reduced axis, or all its rows are aligned
  // to 16 bytes and their sizes are multiples of 16 bytes. Without lanes_fast, a pack has one
  // element of each of ReduceColumns() neighbouring outputs. The tile then counts these outputs as
  // one, and all packs are aligned to their size.
  bool packed = false;
  void* partials = nullptr;  // if tile.splits > 1: kPartialBytes for each split of each output
  double ord = 2;            // the order of a norm
  int out_bytes = 0;         // the size of a stored result
  bool out_is_bool = false;
  // The highest bit of an unsigned integer type, and 0 for other types. Kernels read unsigned
  // integers as signed ones of the same size. The launchers set this.
  uint64_t unsigned_bit = 0;
};
inline constexpr int64_t kPartialBytes = 16;

struct VarMeanJob : ReduceJob {  // `out` is the variance
  void* mean = nullptr;
  double correction = 1;
  // Set for a second pass over the elements: `mean` has the means that the first pass computed.
  bool mean_is_origin = false;
};

using ReduceLauncher = cudaError_t (*)(const ReduceJob& job, cudaStream_t stream);

// A reduction, with a launcher for each dtype of the input. The result has the same dtype, except
// that the results of argmax, argmin and count_nonzero are int64, and those of sums and products of
// integers and bool have any integer dtype, or bool.
struct ReduceKernel {
  const char* op;
  ByDType<ReduceLauncher> by_dtype;
};
std::span<const ReduceKernel> SumKernels();       // sum mean norm
std::span<const ReduceKernel> ProdKernels();      // prod count_nonzero
std::span<const ReduceKernel> ExtremumKernels();  // max min
std::span<const ReduceKernel> ArgKernels();       // argmax argmin

using VarMeanLauncher = cudaError_t (*)(const VarMeanJob& job, cudaStream_t stream);
ByDType<VarMeanLauncher> VarMeanKernels();

// Softmax over the middle of three axes (outer, axis, inner).
struct SoftmaxJob {
  const void* in = nullptr;
  void* out = nullptr;
  int64_t outer = 0, axis = 0, inner = 0;
  ReduceTile tile;
  bool packed = false;       // true if threads load packs; requires inner == 1 and lanes_fast
  void* partials = nullptr;  // if tile.splits > 1: kPartialBytes for each split of each of
                             // outer * inner rows
};
using SoftmaxLauncher = cudaError_t (*)(const SoftmaxJob& job, cudaStream_t stream);

struct SoftmaxKernel {
  const char* op;
  ByDType<SoftmaxLauncher> by_dtype;
};
std::span<const SoftmaxKernel> SoftmaxKernels();  // softmax log_softmax

}  // namespace tensord::server::cuda
