// The kernels behind reduction.h. An op of theirs is a struct with
//   In, Acc, Out              types: stored elements, accumulator, stored result
//   explicit Op(const ReduceJob&)
//   Acc Identity()            of no elements
//   Acc Take(Acc, In, index)  one element more, at `index` of the row-major reduced axes
//   Acc Combine(Acc, Acc)
//   Out Finish(Acc, count)    the result of `count` elements
#pragma once

#include "tensord/server/device/cuda/kernels/launch.cuh"
#include "tensord/server/device/cuda/kernels/reduction.h"

namespace tensord::server::cuda {

// Where a thread stands in its block's tile.
struct TilePosition {
  int lanes, outputs;  // of the tile; powers of two whose product is the block
  int lane, output;    // of the thread

  __device__ explicit TilePosition(const ReduceTile& tile)
      : lanes(1 << tile.lanes_log2), outputs(blockDim.x >> tile.lanes_log2) {
    const int thread = static_cast<int>(threadIdx.x);
    lane = tile.lanes_fast ? thread & (lanes - 1) : thread / outputs;
    output = tile.lanes_fast ? thread >> tile.lanes_log2 : thread & (outputs - 1);
  }
};

// Combines the accumulators of an output's lanes; every lane gets the result. All threads of the
// block take part; `shared` has one place for each.
template <typename Acc, typename Combine>
__device__ Acc CombineLanes(Acc acc, const TilePosition& at, Acc* shared, Combine combine) {
  Acc* mine = shared + at.lane * at.outputs + at.output;
  *mine = acc;
  for (int half = at.lanes / 2; half > 0; half /= 2) {
    __syncthreads();
    if (at.lane < half) *mine = combine(*mine, mine[half * at.outputs]);
  }
  __syncthreads();
  return shared[at.output];
}

// Elements [begin, end) of one output, taken by every `lanes`th.
template <typename Op>
__device__ typename Op::Acc TakeElements(const Op& op, const typename Op::In* in,
                                         const StridedLoop<1>& over, int64_t begin, int64_t end,
                                         const TilePosition& at) {
  typename Op::Acc acc = op.Identity();
  int64_t i = begin + at.lane;
  if (over.rank == 1) {
    const int64_t stride = over.stride[0][0];
    constexpr int kAhead = 4;  // loads in flight
    for (; i + (kAhead - 1) * at.lanes < end; i += kAhead * at.lanes) {
      typename Op::In element[kAhead];
#pragma unroll
      for (int j = 0; j < kAhead; ++j) element[j] = in[(i + j * at.lanes) * stride];
#pragma unroll
      for (int j = 0; j < kAhead; ++j) acc = op.Take(acc, element[j], i + j * at.lanes);
    }
    for (; i < end; i += at.lanes) acc = op.Take(acc, in[i * stride], i);
    return acc;
  }
  for (; i < end; i += at.lanes) {
    int64_t offset[1];
    over.Offsets(i, offset);
    acc = op.Take(acc, in[offset[0]], i);
  }
  return acc;
}

// blockIdx.x: tiles of outputs; blockIdx.y: splits.
template <typename Op>
__global__ void ReduceKernelFor(Op op, ReduceJob job) {
  using Acc = typename Op::Acc;
  __shared__ Acc shared[kThreads];
  const TilePosition at(job.tile);
  const int64_t output = static_cast<int64_t>(blockIdx.x) * at.outputs + at.output;
  Acc acc = op.Identity();
  if (output < job.kept.size) {
    int64_t base[1];
    job.kept.Offsets(output, base);
    const int64_t begin = blockIdx.y * job.tile.chunk;
    const int64_t end = min(begin + job.tile.chunk, job.over.size);
    const auto* in = static_cast<const typename Op::In*>(job.in) + base[0];
    acc = TakeElements(op, in, job.over, begin, end, at);
  }
  acc = CombineLanes(acc, at, shared, [&](Acc a, Acc b) { return op.Combine(a, b); });
  if (at.lane != 0 || output >= job.kept.size) return;
  if (job.tile.splits > 1) {
    static_cast<Acc*>(job.partials)[output * job.tile.splits + blockIdx.y] = acc;
  } else {
    static_cast<typename Op::Out*>(job.out)[output] = op.Finish(acc, job.over.size);
  }
}

// The second pass, over the partial results of `splits` blocks for each output.
template <typename Op>
__global__ void CombinePartialsKernel(Op op, const typename Op::Acc* partials,
                                      typename Op::Out* out, int64_t outputs, int splits,
                                      int64_t count, ReduceTile tile) {
  using Acc = typename Op::Acc;
  __shared__ Acc shared[kThreads];
  const TilePosition at(tile);
  const int64_t output = static_cast<int64_t>(blockIdx.x) * at.outputs + at.output;
  Acc acc = op.Identity();
  if (output < outputs) {
    for (int i = at.lane; i < splits; i += at.lanes) {
      acc = op.Combine(acc, partials[output * splits + i]);
    }
  }
  acc = CombineLanes(acc, at, shared, [&](Acc a, Acc b) { return op.Combine(a, b); });
  if (at.lane == 0 && output < outputs) out[output] = op.Finish(acc, count);
}

inline int64_t TileCount(int64_t outputs, const ReduceTile& tile) {
  const int64_t outputs_per_block = kThreads >> tile.lanes_log2;
  return (outputs + outputs_per_block - 1) / outputs_per_block;
}

template <typename Op>
cudaError_t LaunchReduce(const ReduceJob& job, cudaStream_t stream) {
  using Acc = typename Op::Acc;
  static_assert(sizeof(Acc) <= kPartialBytes);
  const Op op(job);
  const int64_t blocks = TileCount(job.kept.size, job.tile);
  if (blocks > kMaxGridX) return cudaErrorInvalidConfiguration;
  const dim3 grid(static_cast<unsigned>(blocks), job.tile.splits);
  const cudaError_t error = LaunchKernel(ReduceKernelFor<Op>, grid, kThreads, stream, op, job);
  if (error != cudaSuccess || job.tile.splits == 1) return error;
  ReduceTile tile;
  while (tile.lanes_log2 < kThreadsLog2 && (1 << tile.lanes_log2) < job.tile.splits) {
    ++tile.lanes_log2;
  }
  const auto tiles = static_cast<unsigned>(TileCount(job.kept.size, tile));
  return LaunchKernel(
      CombinePartialsKernel<Op>, tiles, kThreads, stream, op, static_cast<const Acc*>(job.partials),
      static_cast<typename Op::Out*>(job.out), job.kept.size, job.tile.splits, job.over.size, tile);
}

template <template <typename> class OpOf>
struct ReduceFamily {
  template <typename Storage>
  static cudaError_t Launch(const ReduceJob& job, cudaStream_t stream) {
    return LaunchReduce<OpOf<Storage>>(job, stream);
  }
};

}  // namespace tensord::server::cuda
