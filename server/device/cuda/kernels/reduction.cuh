// The kernels of reduction.h. An op is a struct with
//   In, Acc, Out              types: stored elements, accumulator, stored result
//   explicit Op(const ReduceJob&)
//   Acc Identity()            the accumulator of no elements
//   Acc Accumulate(Acc, In, index)  adds an element, at `index` of the row-major reduced axes
//   Acc Combine(Acc, Acc)
//   Out Finish(Acc, count)    the result of `count` elements
// If the type of the results isn't known when the op is compiled, the op has in place of Finish():
//   void StoreAt(void* out, int64_t output, Acc)
#pragma once

#include "tensord/server/device/cuda/kernels/launch.cuh"
#include "tensord/server/device/cuda/kernels/reduction.h"

namespace tensord::server::cuda {

// A multiprocessor has 65,536 registers and runs at most 2,048 threads, or 1,536 if its compute
// capability is 8.6 to 8.9 or 12.x. Blocks of 256 threads reach full occupancy if a thread uses at
// most 32 or 40 registers. __launch_bounds__ makes the compiler keep this limit. If each of 2,048
// threads loads 16 bytes, 32 KiB are in flight. For its full memory bandwidth, an H100 needs about
// 17 KiB in flight per multiprocessor (3.35 TB/s * 0.7 us / 132).
#if defined(__CUDA_ARCH__) && \
    ((__CUDA_ARCH__ > 800 && __CUDA_ARCH__ < 900) || __CUDA_ARCH__ >= 1200)
inline constexpr int kBlocksForFullOccupancy = 1536 / kThreads;
#else
inline constexpr int kBlocksForFullOccupancy = 2048 / kThreads;
#endif

// Kernels of several columns keep more loads in flight in each thread, and need up to 40 registers.
inline constexpr int kBlocksOfColumns = 6;

// The position of a thread in its block's tile.
struct TilePosition {
  int lanes, outputs;  // of the tile; powers of two whose product is the block's number of threads
  int lane, output;    // of the thread

  __device__ explicit TilePosition(const ReduceTile& tile)
      : lanes(1 << tile.lanes_log2), outputs(blockDim.x >> tile.lanes_log2) {
    const int thread = static_cast<int>(threadIdx.x);
    lane = tile.lanes_fast ? thread & (lanes - 1) : thread / outputs;
    output = tile.lanes_fast ? thread >> tile.lanes_log2 : thread & (outputs - 1);
  }
};

// Combines the accumulators of an output's lanes. Returns the result to every lane. All threads of
// the block must call it. `shared` has one element for each thread. After the call, a barrier must
// come before the next use of `shared`.
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

// Divides the elements [begin, end) of a contiguous row among the lanes of an output. Calls
// many(i, pack) for each aligned pack of 16 bytes, and one(i) for each element before and after the
// packs. i is the index of the element, or of the pack's first element.
template <typename T, typename One, typename Many>
__device__ void ForRow(const T* in, int64_t begin, int64_t end, const TilePosition& at, One one,
                       Many many) {
  if (begin >= end) return;
  constexpr int kWidth = kPackWidth<T>;
  using Packed = Pack<T, kWidth>;
  const auto past = static_cast<int>(reinterpret_cast<uintptr_t>(in + begin) / sizeof(T) % kWidth);
  const int64_t first = min(begin + (kWidth - past) % kWidth, end);
  const int64_t last = first + (end - first) / kWidth * kWidth;
#pragma unroll 1
  for (int64_t i = first + at.lane * kWidth; i < last; i += at.lanes * kWidth) {
    const Packed pack = *reinterpret_cast<const Packed*>(in + i);
    many(i, pack);
  }
  const int64_t head = first - begin;
#pragma unroll 1
  for (int64_t i = at.lane; i < head + (end - last); i += at.lanes) {
    one(i < head ? begin + i : last + (i - head));
  }
}

// Accumulates this lane's share of the elements [begin, end) of one output. Loads packs of 16
// bytes.
template <typename Op>
__device__ typename Op::Acc TakePacks(const Op& op, const typename Op::In* in,
                                      const StridedLoop<1>& over, int64_t begin, int64_t end,
                                      const TilePosition& at) {
  using In = typename Op::In;
  constexpr int kWidth = kPackWidth<In>;
  typename Op::Acc acc = op.Identity();
  const auto accumulate = [&](int64_t i, const Pack<In, kWidth>& pack) {
#pragma unroll
    for (int j = 0; j < kWidth; ++j) acc = op.Accumulate(acc, pack.value[j], i + j);
  };
  if (over.rank == 1) {
    ForRow(
        in, begin, end, at, [&](int64_t i) { acc = op.Accumulate(acc, in[i], i); }, accumulate);
    return acc;
  }
#pragma unroll 1
  for (int64_t i = begin + at.lane * kWidth; i < end; i += at.lanes * kWidth) {
    int64_t offset[1];
    over.Offsets(i, offset);
    const auto pack = *reinterpret_cast<const Pack<In, kWidth>*>(in + offset[0]);
    accumulate(i, pack);
  }
  return acc;
}

// Accumulates this lane's share of the elements [begin, end) of each of kColumns neighbouring
// outputs. Loads packs of one element of each output.
template <typename Op, int kColumns>
__device__ void TakeColumns(const Op& op, const typename Op::In* in, const StridedLoop<1>& over,
                            int64_t begin, int64_t end, const TilePosition& at,
                            typename Op::Acc (&acc)[kColumns]) {
  using Packed = Pack<typename Op::In, kColumns>;
  const auto accumulate = [&](int64_t i, const Packed& pack) {
#pragma unroll
    for (int c = 0; c < kColumns; ++c) acc[c] = op.Accumulate(acc[c], pack.value[c], i);
  };
  int64_t i = begin + at.lane;
  if (over.rank == 1) {
    const int64_t stride = over.stride[0][0];
    constexpr int kAhead = sizeof(Packed) >= 16 ? 2 : 4;
#pragma unroll 1
    for (; i + (kAhead - 1) * at.lanes < end; i += kAhead * at.lanes) {
      Packed pack[kAhead];
#pragma unroll
      for (int j = 0; j < kAhead; ++j) {
        pack[j] = *reinterpret_cast<const Packed*>(in + (i + j * at.lanes) * stride);
      }
#pragma unroll
      for (int j = 0; j < kAhead; ++j) accumulate(i + j * at.lanes, pack[j]);
    }
  }
#pragma unroll 1
  for (; i < end; i += at.lanes) {
    int64_t offset[1];
    over.Offsets(i, offset);
    const Packed pack = *reinterpret_cast<const Packed*>(in + offset[0]);
    accumulate(i, pack);
  }
}

// A base of ops over integers and bool, which compute modulo 2^64. Stores the low bytes of a
// result, or whether it is zero. An unsigned element is read as a signed one. Then `mask` removes
// the copies of its highest bit.
struct IntegerResult {
  int bytes;
  bool is_bool;
  uint64_t mask;

  explicit IntegerResult(const ReduceJob& job)
      : bytes(job.out_bytes),
        is_bool(job.out_is_bool),
        mask(job.unsigned_bit == 0 ? ~uint64_t{0} : 2 * job.unsigned_bit - 1) {}

  template <typename Acc, typename In>
  __device__ Acc Read(In x) const {
    return static_cast<Acc>(Load(x)) & mask;
  }
  __device__ void StoreAt(void* out, int64_t output, uint64_t result) const {
    if (is_bool) result = result != 0 ? 1 : 0;
    if (bytes == 8) {
      static_cast<uint64_t*>(out)[output] = result;
    } else if (bytes == 4) {
      static_cast<uint32_t*>(out)[output] = static_cast<uint32_t>(result);
    } else if (bytes == 2) {
      static_cast<uint16_t*>(out)[output] = static_cast<uint16_t>(result);
    } else {
      static_cast<uint8_t*>(out)[output] = static_cast<uint8_t>(result);
    }
  }
};

// A base of ops over floating dtypes: rounds a result to the input's dtype.
template <typename T>
struct FloatingResult {
  using Out = T;

  explicit FloatingResult(const ReduceJob&) {}

  template <typename Acc, typename In>
  __device__ Acc Read(In x) const {
    return static_cast<Acc>(Load(x));
  }
  template <typename Acc>
  __device__ Out Finish(Acc acc, int64_t) const {
    return Store<Out>(static_cast<MathOf<T>>(acc));
  }
};

template <typename T>
inline constexpr bool kIsFloating = std::is_floating_point_v<MathOf<T>>;
template <typename T>
using ResultOf = std::conditional_t<kIsFloating<T>, FloatingResult<T>, IntegerResult>;

template <typename Op>
__device__ void StoreResult(const Op& op, void* out, int64_t output, typename Op::Acc acc,
                            int64_t count) {
  if constexpr (requires { op.StoreAt(out, output, acc); }) {
    op.StoreAt(out, output, acc);
  } else {
    static_cast<typename Op::Out*>(out)[output] = op.Finish(acc, count);
  }
}

// blockIdx.x is the tile, which counts kColumns outputs as one. blockIdx.y is the split.
template <typename Op, int kColumns>
__global__ void __launch_bounds__(kThreads,
                                  kColumns == 1 ? kBlocksForFullOccupancy : kBlocksOfColumns)
    ReduceKernelFor(Op op, ReduceJob job) {
  using Acc = typename Op::Acc;
  __shared__ Acc shared[kColumns][kThreads];
  const TilePosition at(job.tile);
  const int64_t output = (static_cast<int64_t>(blockIdx.x) * at.outputs + at.output) * kColumns;
  Acc acc[kColumns];
  for (Acc& a : acc) a = op.Identity();
  if (output < job.kept.size) {
    int64_t base[1];
    job.kept.Offsets(output, base);
    const int64_t begin = blockIdx.y * job.tile.chunk;
    const int64_t end = min(begin + job.tile.chunk, job.over.size);
    const auto* in = static_cast<const typename Op::In*>(job.in) + base[0];
    if (kColumns == 1 && job.packed) {
      acc[0] = TakePacks(op, in, job.over, begin, end, at);
    } else {
      TakeColumns<Op, kColumns>(op, in, job.over, begin, end, at, acc);
    }
  }
#pragma unroll
  for (int c = 0; c < kColumns; ++c) {
    acc[c] = CombineLanes(acc[c], at, shared[c], [&](Acc a, Acc b) { return op.Combine(a, b); });
  }
  if (at.lane != 0 || output >= job.kept.size) return;
#pragma unroll
  for (int c = 0; c < kColumns; ++c) {
    if (job.tile.splits > 1) {
      static_cast<Acc*>(job.partials)[(output + c) * job.tile.splits + blockIdx.y] = acc[c];
    } else {
      StoreResult(op, job.out, output + c, acc[c], job.over.size);
    }
  }
}

// Runs the second pass: combines the partial results of `splits` blocks for each output.
template <typename Op>
__global__ void CombinePartialsKernel(Op op, const typename Op::Acc* partials, void* out,
                                      int64_t outputs, int splits, int64_t count, ReduceTile tile) {
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
  if (at.lane == 0 && output < outputs) StoreResult(op, out, output, acc, count);
}

inline int64_t TileCount(int64_t outputs, const ReduceTile& tile) {
  const int64_t outputs_per_block = kThreads >> tile.lanes_log2;
  return (outputs + outputs_per_block - 1) / outputs_per_block;
}

// Returns the tile of the second pass.
inline ReduceTile TileOfPartials(int splits) {
  ReduceTile tile;
  while (tile.lanes_log2 < kThreadsLog2 && (1 << tile.lanes_log2) < splits) ++tile.lanes_log2;
  return tile;
}

template <typename Op>
cudaError_t LaunchReduce(const ReduceJob& job, cudaStream_t stream) {
  using Acc = typename Op::Acc;
  static_assert(sizeof(Acc) <= kPartialBytes);
  constexpr int kColumns = ReduceColumns(sizeof(typename Op::In));
  const Op op(job);
  const bool columns = job.packed && !job.tile.lanes_fast;
  const int64_t blocks = TileCount(job.kept.size / (columns ? kColumns : 1), job.tile);
  if (blocks > kMaxGridX) return cudaErrorInvalidConfiguration;
  const dim3 grid(static_cast<unsigned>(blocks), job.tile.splits);
  const cudaError_t error =
      LaunchKernel(columns ? ReduceKernelFor<Op, kColumns> : ReduceKernelFor<Op, 1>, grid, kThreads,
                   stream, op, job);
  if (error != cudaSuccess || job.tile.splits == 1) return error;
  const ReduceTile tile = TileOfPartials(job.tile.splits);
  const auto tiles = static_cast<unsigned>(TileCount(job.kept.size, tile));
  return LaunchKernel(CombinePartialsKernel<Op>, tiles, kThreads, stream, op,
                      static_cast<const Acc*>(job.partials), job.out, job.kept.size,
                      job.tile.splits, job.over.size, tile);
}

// Maps the integers of a reduction to signed ones in the same order, and back. Inverts the highest
// bit of unsigned integers. Doesn't change other values.
template <typename T>
struct SignedOrder {
  T bit = 0;

  explicit SignedOrder(const ReduceJob& job) : bit(static_cast<T>(job.unsigned_bit)) {}
  __device__ T operator()(T x) const {
    if constexpr (kIsInteger<T>) {
      return static_cast<T>(x ^ bit);
    } else {
      return x;
    }
  }
};

template <template <typename> class OpOf>
struct ReduceFamily {
  template <typename Storage>
  static cudaError_t Launch(const ReduceJob& job, cudaStream_t stream) {
    if constexpr (std::is_same_v<SignedOf<Storage>, Storage>) {
      return LaunchReduce<OpOf<Storage>>(job, stream);
    } else {
      ReduceJob of_signed = job;
      of_signed.unsigned_bit = uint64_t{1} << (8 * sizeof(Storage) - 1);
      return LaunchReduce<OpOf<SignedOf<Storage>>>(of_signed, stream);
    }
  }
};

}  // namespace tensord::server::cuda
