#include "tensord/server/device/cuda/kernels/attention.cuh"

namespace tensord::server::cuda {
namespace {

// A block has rows of q, and reads the keys tile by tile. It keeps sums relative to the largest
// score so far (Dao et al., "FlashAttention", 2022).
template <typename Storage>
__global__ void __launch_bounds__(kThreads) AttentionKernel(AttentionJob job) {
  using T = MathOf<Storage>;
  __shared__ DotTiles<T> shared;
  const TileOfBlock tile(job.group * job.length);
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  const int64_t first_row = tile.item * job.group * job.length + tile.first;
  const RowsOfTile<Storage> q(job.q, first_row, tile.count, job.depth);
  const Score<T> score(job);
  const T lowest = -static_cast<T>(INFINITY);
  T max[kLines], sum[kLines], values[kLines][kColumns] = {};
  for (int l = 0; l < kLines; ++l) {
    max[l] = lowest;
    sum[l] = 0;
  }
  const int64_t end = EndOfKeys(job, tile.first, tile.count);
  for (int64_t key = 0; key < end; key += kTile) {
    const int64_t first_key = tile.item * job.keys + key;
    T weights[kLines];
    Dots(q, RowsOfTile<Storage>(job.k, first_key, job.keys - key, job.depth), shared, weights);
#pragma unroll
    for (int l = 0; l < kLines; ++l) {
      const int64_t row = tile.first + warp * kLines + l;
      const T x = score.Of(tile.item, row, key + lane, weights[l]);
      const T largest = MaxOfLanes(x > max[l] ? x : max[l]);
      const T offset = largest == lowest ? T{0} : largest;
      const T factor = math::Exp(max[l] - offset);
      T weight = math::Exp(x - offset);
      max[l] = largest;
      sum[l] = sum[l] * factor + SumOfLanes(weight);
      if (weight != T{0}) weight *= score.Factor(tile.item, row, key + lane);
      weights[l] = weight;
#pragma unroll
      for (int c = 0; c < kColumns; ++c) values[l][c] *= factor;
    }
    AddWeighted(weights, RowsOfTile<Storage>(job.v, first_key, job.keys - key, job.value_depth),
                tile.column, values);
  }
  auto* o = static_cast<Storage*>(job.o);
  ForSums(values, tile.count, tile.column, job.value_depth, [&](int l, int64_t column, T value) {
    const int64_t row = first_row + warp * kLines + l;
    o[row * job.value_depth + column] = Store<Storage>(sum[l] == T{0} ? T{0} : value / sum[l]);
  });
  if (lane != 0 || blockIdx.y != 0) return;
  for (int l = 0; l < kLines; ++l) {
    const int line = warp * kLines + l;
    if (line < tile.count) static_cast<T*>(job.lse)[first_row + line] = max[l] + math::Log(sum[l]);
  }
}

struct AttentionFamily {
  template <typename Storage>
  static cudaError_t Launch(const AttentionJob& job, cudaStream_t stream) {
    return LaunchOverTiles(AttentionKernel<Storage>, job, job.items, job.rows(), job.value_depth,
                           stream);
  }
};

}  // namespace

ByDType<AttentionLauncher> AttentionKernels() {
  return LaunchersFor<AttentionLauncher, AttentionFamily>(FloatingTypes());
}

}  // namespace tensord::server::cuda
