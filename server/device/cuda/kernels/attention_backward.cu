#include "tensord/server/device/cuda/kernels/attention.cuh"

namespace tensord::server::cuda {
namespace {

// Sets delta to Σ g o of each row. Each warp computes a row.
template <typename Storage>
__global__ void DeltaKernel(AttentionJob job) {
  using T = MathOf<Storage>;
  const auto* g = static_cast<const Storage*>(job.g);
  const auto* o = static_cast<const Storage*>(job.o);
  const int lane = threadIdx.x % kWarp;
  const int64_t rows = job.items * job.group * job.length;
  for (int64_t row = FirstIndex() / kWarp; row < rows; row += IndexStep() / kWarp) {
    T sum = 0;
    for (int64_t c = lane; c < job.value_depth; c += kWarp) {
      const int64_t at = row * job.value_depth + c;
      sum += Load(g[at]) * Load(o[at]);
    }
    sum = SumOfLanes(sum);
    if (lane == 0) static_cast<T*>(job.delta)[row] = sum;
  }
}

// Computes the weight that a value had, and the gradient of the score. The arguments are the
// product of row and key, and that of the row's gradient and the key's value.
template <typename T>
struct ScoreGradient {
  T weight = 0, score = 0;

  __device__ ScoreGradient(const AttentionJob& job, const Score<T>& scores, int64_t item,
                           int64_t row, int64_t key, T product, T of_weight) {
    const T x = scores.Of(item, row, key, product);
    const T lowest = -static_cast<T>(INFINITY);
    if (x == lowest) return;
    const int64_t at = item * job.group * job.length + row;
    const T lse = static_cast<const T*>(job.lse)[at];
    const T p = lse == lowest ? T{0} : math::Exp(x - lse);
    const T factor = scores.Factor(item, row, key);
    weight = p * factor;
    score = p * (of_weight * factor - static_cast<const T*>(job.delta)[at]);
  }
};

template <typename Storage>
__device__ void StoreSums(const MathOf<Storage> (&sums)[kLines][kColumns], const TileOfBlock& tile,
                          int64_t first_line, int64_t columns, MathOf<Storage> factor, void* out) {
  const int warp = threadIdx.x / kWarp;
  ForSums(sums, tile.count, tile.column, columns, [&](int l, int64_t column, MathOf<Storage> sum) {
    static_cast<Storage*>(out)[(first_line + warp * kLines + l) * columns + column] =
        Store<Storage>(sum * factor);
  });
}

// A block has rows of q, and reads the keys tile by tile.
template <typename Storage>
__global__ void __launch_bounds__(kThreads) RowGradientsKernel(AttentionJob job) {
  using T = MathOf<Storage>;
  __shared__ DotTiles<T> shared;
  const TileOfBlock tile(job.group * job.length);
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  const int64_t first_row = tile.item * job.group * job.length + tile.first;
  const RowsOfTile<Storage> q(job.q, first_row, tile.count, job.depth);
  const RowsOfTile<Storage> g(job.g, first_row, tile.count, job.value_depth);
  const Score<T> scores(job);
  T gq[kLines][kColumns] = {};
  const int64_t end = EndOfKeys(job, tile.first, tile.count);
  for (int64_t key = 0; key < end; key += kTile) {
    const int64_t first_key = tile.item * job.keys + key;
    const RowsOfTile<Storage> k(job.k, first_key, job.keys - key, job.depth);
    const RowsOfTile<Storage> v(job.v, first_key, job.keys - key, job.value_depth);
    T products[kLines], of_weights[kLines];
    Dots(q, k, shared, products);
    Dots(g, v, shared, of_weights);
#pragma unroll
    for (int l = 0; l < kLines; ++l) {
      const int64_t row = tile.first + warp * kLines + l;
      products[l] =
          ScoreGradient<T>(job, scores, tile.item, row, key + lane, products[l], of_weights[l])
              .score;
    }
    AddWeighted(products, k, tile.column, gq);
  }
  StoreSums<Storage>(gq, tile, first_row, job.depth, static_cast<T>(job.scale), job.gq);
}

// A block has keys, and reads the rows of q tile by tile.
template <typename Storage>
__global__ void __launch_bounds__(kThreads) KeyGradientsKernel(AttentionJob job) {
  using T = MathOf<Storage>;
  __shared__ DotTiles<T> shared;
  const TileOfBlock tile(job.keys);
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  const int64_t first_key = tile.item * job.keys + tile.first;
  const RowsOfTile<Storage> k(job.k, first_key, tile.count, job.depth);
  const RowsOfTile<Storage> v(job.v, first_key, tile.count, job.value_depth);
  const Score<T> scores(job);
  const int64_t rows = job.group * job.length;
  T gk[kLines][kColumns] = {}, gv[kLines][kColumns] = {};
  for (int64_t row = 0; row < rows; row += kTile) {
    const int64_t count = min(rows - row, int64_t{kTile});
    if (EndOfKeys(job, row, count) <= tile.first) continue;
    const int64_t first_row = tile.item * rows + row;
    const RowsOfTile<Storage> q(job.q, first_row, count, job.depth);
    const RowsOfTile<Storage> g(job.g, first_row, count, job.value_depth);
    T products[kLines], of_weights[kLines];
    Dots(k, q, shared, products);
    Dots(v, g, shared, of_weights);
#pragma unroll
    for (int l = 0; l < kLines; ++l) {
      const int64_t key = tile.first + warp * kLines + l;
      const ScoreGradient<T> of(job, scores, tile.item, row + lane, key, products[l],
                                of_weights[l]);
      products[l] = of.score;
      of_weights[l] = of.weight;
    }
    AddWeighted(products, q, tile.column, gk);
    AddWeighted(of_weights, g, tile.column, gv);
  }
  StoreSums<Storage>(gk, tile, first_key, job.depth, static_cast<T>(job.scale), job.gk);
  StoreSums<Storage>(gv, tile, first_key, job.value_depth, T{1}, job.gv);
}

// A block has a tile of a matrix of the mask, and adds the gradients of the scores to which the
// tile was added, head by head. If the rows or the keys have one element of the mask, the block
// reads all of them.
template <typename Storage>
__global__ void __launch_bounds__(kThreads) MaskGradientKernel(AttentionMaskJob mask) {
  using T = MathOf<Storage>;
  __shared__ DotTiles<T> shared;
  const AttentionJob& job = mask.attention;
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  const bool each_row = job.mask_row != 0, each_key = job.mask_key != 0;
  const int64_t key_tiles = each_key ? (job.keys + kTile - 1) / kTile : 1;
  const int64_t row_tiles = each_row ? (job.length + kTile - 1) / kTile : 1;
  const int64_t first_key = blockIdx.x % key_tiles * kTile;
  const int64_t first_row = blockIdx.x / key_tiles % row_tiles * kTile;
  const int64_t matrix = blockIdx.x / key_tiles / row_tiles;
  const int64_t end_key = each_key ? min(job.keys, first_key + kTile) : job.keys;
  const int64_t end_row = each_row ? min(job.length, first_row + kTile) : job.length;
  const Score<T> scores(job);
  int64_t head[1];
  mask.first_head.Offsets(matrix, head);
  T sums[kLines] = {};
  for (int64_t i = 0; i < mask.next_head.size; ++i) {
    int64_t distance[1];
    mask.next_head.Offsets(i, distance);
    const int64_t item = (head[0] + distance[0]) / job.group;
    const int64_t of_head = (head[0] + distance[0]) % job.group * job.length;
    for (int64_t row = first_row; row < end_row; row += kTile) {
      const int64_t in_q = item * job.group * job.length + of_head + row;
      const RowsOfTile<Storage> q(job.q, in_q, end_row - row, job.depth);
      const RowsOfTile<Storage> g(job.g, in_q, end_row - row, job.value_depth);
      for (int64_t key = first_key; key < end_key; key += kTile) {
        const int64_t in_k = item * job.keys + key;
        T products[kLines], of_weights[kLines];
        Dots(q, RowsOfTile<Storage>(job.k, in_k, end_key - key, job.depth), shared, products);
        Dots(g, RowsOfTile<Storage>(job.v, in_k, end_key - key, job.value_depth), shared,
             of_weights);
#pragma unroll
        for (int l = 0; l < kLines; ++l) {
          const int64_t line = row + warp * kLines + l;
          if (line >= end_row) continue;
          sums[l] += ScoreGradient<T>(job, scores, item, of_head + line, key + lane, products[l],
                                      of_weights[l])
                         .score;
        }
      }
    }
  }
  // Adds the keys, the rows of a warp, and the rows of all warps, if they have one element.
#pragma unroll
  for (int l = 0; l < kLines; ++l) {
    if (!each_key) sums[l] = SumOfLanes(sums[l]);
    if (!each_row && l > 0) sums[0] += sums[l];
  }
  if (!each_row) {
    __syncthreads();
    shared.lines[warp][lane] = sums[0];
    __syncthreads();
    sums[0] = 0;
    for (int w = 0; w < kWarps; ++w) sums[0] += shared.lines[w][lane];
  }
  if (each_key ? first_key + lane >= job.keys : lane != 0) return;
  for (int l = 0; l < (each_row ? kLines : 1); ++l) {
    const int64_t row = first_row + (each_row ? warp * kLines + l : 0);
    if (each_row ? row >= job.length : warp != 0) return;
    const int64_t at =
        matrix * mask.elements + row * job.mask_row + (each_key ? first_key + lane : 0);
    if (mask.wide) {
      static_cast<T*>(mask.gmask)[at] = sums[l];
    } else {
      static_cast<Storage*>(mask.gmask)[at] = Store<Storage>(sums[l]);
    }
  }
}

struct AttentionBackwardFamily {
  template <typename Storage>
  static cudaError_t Launch(const AttentionJob& job, cudaStream_t stream) {
    const int64_t rows = job.items * job.rows();
    if (rows > 0) {
      const cudaError_t error =
          LaunchKernel(DeltaKernel<Storage>, GridSize(rows * kWarp), kThreads, stream, job);
      if (error != cudaSuccess) return error;
    }
    const cudaError_t error =
        LaunchOverTiles(RowGradientsKernel<Storage>, job, job.items, job.rows(), job.depth, stream);
    if (error != cudaSuccess) return error;
    return LaunchOverTiles(KeyGradientsKernel<Storage>, job, job.items, job.keys,
                           std::max(job.depth, job.value_depth), stream);
  }
};

struct AttentionMaskFamily {
  template <typename Storage>
  static cudaError_t Launch(const AttentionMaskJob& job, cudaStream_t stream) {
    const AttentionJob& of = job.attention;
    const int64_t key_tiles = of.mask_key != 0 ? (of.keys + kTile - 1) / kTile : 1;
    const int64_t row_tiles = of.mask_row != 0 ? (of.length + kTile - 1) / kTile : 1;
    const int64_t blocks = job.first_head.size * row_tiles * key_tiles;
    if (blocks == 0) return cudaSuccess;
    if (blocks > kMaxGridX) return cudaErrorInvalidConfiguration;
    return LaunchKernel(MaskGradientKernel<Storage>, static_cast<unsigned>(blocks), kThreads,
                        stream, job);
  }
};

}  // namespace

ByDType<AttentionLauncher> AttentionBackwardKernels() {
  return LaunchersFor<AttentionLauncher, AttentionBackwardFamily>(FloatingTypes());
}
ByDType<AttentionMaskLauncher> AttentionMaskKernels() {
  return LaunchersFor<AttentionMaskLauncher, AttentionMaskFamily>(FloatingTypes());
}

}  // namespace tensord::server::cuda
