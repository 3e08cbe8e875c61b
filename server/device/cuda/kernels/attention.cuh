// Tiles of scores: some rows of q beside some keys. A block has a tile, and each of its warps some
// lines of the tile. A line is a row beside the keys of the tile, or a key beside its rows: one for
// each lane of the warp.
#pragma once

#include "tensord/server/device/cuda/kernels/attention.h"
#include "tensord/server/device/cuda/kernels/launch.cuh"
#include "tensord/server/device/random_math.h"

namespace tensord::server::cuda {

inline constexpr int kWarp = 32, kWarps = kThreads / kWarp;
inline constexpr int kLines = 4;                 // of a warp
inline constexpr int kTile = kWarps * kLines;    // the rows and the keys of a tile
inline constexpr int kColumns = 4;               // of a lane
inline constexpr int kChunk = kColumns * kWarp;  // the columns of a result that a block computes
static_assert(kTile == kWarp);
inline constexpr unsigned kAllLanes = 0xffffffff;

// Some rows of a dense matrix.
template <typename Storage>
struct RowsOfTile {
  const Storage* data;  // the first row
  int64_t count;        // at most kTile
  int64_t columns;

  __device__ RowsOfTile(const void* matrix, int64_t first, int64_t rows, int64_t width)
      : data(static_cast<const Storage*>(matrix) + first * width),
        count(rows < kTile ? rows : kTile),
        columns(width) {}
};

template <typename T>
struct DotTiles {
  T lines[kTile][kWarp + 1], lanes[kTile][kWarp + 1];  // the extra column avoids bank conflicts
};

// dots[l] = the product of the warp's line l with the row of the lane. Rows that don't exist count
// as zeros. All threads of the block must call it.
template <typename Storage, typename T>
__device__ void Dots(const RowsOfTile<Storage>& lines, const RowsOfTile<Storage>& lanes,
                     DotTiles<T>& shared, T (&dots)[kLines]) {
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
#pragma unroll
  for (T& dot : dots) dot = 0;
  for (int64_t base = 0; base < lines.columns; base += kWarp) {
    __syncthreads();  // an earlier use of `shared` has ended
    const int64_t column = base + lane;
    for (int row = warp; row < kTile; row += kWarps) {
      const bool inside = column < lines.columns;
      const int64_t at = row * lines.columns + column;
      shared.lines[row][lane] = inside && row < lines.count ? Load(lines.data[at]) : T{0};
      shared.lanes[row][lane] = inside && row < lanes.count ? Load(lanes.data[at]) : T{0};
    }
    __syncthreads();
#pragma unroll 8
    for (int e = 0; e < kWarp; ++e) {
      const T x = shared.lanes[lane][e];
#pragma unroll
      for (int l = 0; l < kLines; ++l) dots[l] += shared.lines[warp * kLines + l][e] * x;
    }
  }
}

// sums[l][c] += the sum over lanes i of weights[l] of lane i, times element first + lane + 32 c of
// row i. All threads of a warp must call it.
template <typename Storage, typename T>
__device__ void AddWeighted(const T (&weights)[kLines], const RowsOfTile<Storage>& rows,
                            int64_t first, T (&sums)[kLines][kColumns]) {
  const int lane = threadIdx.x % kWarp;
  for (int i = 0; i < rows.count; ++i) {
    T weight[kLines];
#pragma unroll
    for (int l = 0; l < kLines; ++l) weight[l] = __shfl_sync(kAllLanes, weights[l], i);
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      const int64_t column = first + lane + c * kWarp;
      if (column >= rows.columns) continue;
      const T x = Load(rows.data[i * rows.columns + column]);
#pragma unroll
      for (int l = 0; l < kLines; ++l) sums[l][c] += weight[l] * x;
    }
  }
}

// Calls fn(line, column, sum) for the sums that exist.
template <typename T, typename Fn>
__device__ void ForSums(const T (&sums)[kLines][kColumns], int64_t lines, int64_t first,
                        int64_t columns, Fn fn) {
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
#pragma unroll
  for (int l = 0; l < kLines; ++l) {
    const int line = warp * kLines + l;
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      const int64_t column = first + lane + c * kWarp;
      if (line < lines && column < columns) fn(l, column, sums[l][c]);
    }
  }
}

template <typename T>
__device__ T MaxOfLanes(T x) {
  for (int mask = kWarp / 2; mask > 0; mask /= 2) {
    const T other = __shfl_xor_sync(kAllLanes, x, mask);
    if (other > x) x = other;
  }
  return x;
}
template <typename T>
__device__ T SumOfLanes(T x) {
  for (int mask = kWarp / 2; mask > 0; mask /= 2) x += __shfl_xor_sync(kAllLanes, x, mask);
  return x;
}

// The score of a row of an item and a key.
template <typename T>
class Score {
 public:
  __device__ explicit Score(const AttentionJob& job) : job_(job) {
    if (!job.drops) return;
    stream_ = job.source.state == nullptr ? job.source.stream
                                          : RandomStream{job.source.state[0], job.source.state[1]};
  }

  // Returns the score for the product of the row and the key; -inf if the row doesn't attend to
  // the key.
  __device__ T Of(int64_t item, int64_t row, int64_t key, T product) const {
    const T excluded = -static_cast<T>(INFINITY);
    if (row >= job_.group * job_.length || key >= job_.keys) return excluded;
    if (job_.causal && key > row % job_.length) return excluded;
    const T score = product * static_cast<T>(job_.scale);
    if (job_.mask == nullptr) return score;
    int64_t offset[1];
    job_.mask_of_head.Offsets(item * job_.group + row / job_.length, offset);
    const int64_t at = offset[0] + row % job_.length * job_.mask_row + key * job_.mask_key;
    if (!job_.mask_is_bool) return score + static_cast<const T*>(job_.mask)[at];
    return static_cast<const uint8_t*>(job_.mask)[at] != 0 ? score : excluded;
  }

  // Returns the factor by which dropout multiplies the weight.
  __device__ T Factor(int64_t item, int64_t row, int64_t key) const {
    if (!job_.drops) return T{1};
    const int64_t at = (item * job_.group * job_.length + row) * job_.keys + key;
    const PhiloxBlock block = Philox(stream_, static_cast<uint64_t>(at / 4));
    return IsKept(block.word[at % 4], job_.rule.first_kept) ? T{1} / static_cast<T>(job_.rule.keep)
                                                            : T{0};
  }

 private:
  const AttentionJob& job_;
  RandomStream stream_;
};

// Returns the end of the keys to which a row of [first, first + count) attends.
__device__ inline int64_t EndOfKeys(const AttentionJob& job, int64_t first, int64_t count) {
  if (!job.causal) return job.keys;
  const int64_t last = first % job.length + count;  // after the last row, if all are of one head
  return min(job.keys, last > job.length ? job.length : last);
}

// The tile that a block begins with: blockIdx.x counts the tiles of all items, and blockIdx.y the
// chunks of the result's columns.
struct TileOfBlock {
  int64_t item, first, count;  // some rows, or some keys, of an item
  int64_t column;

  __device__ explicit TileOfBlock(int64_t lines) {
    const int64_t tiles = (lines + kTile - 1) / kTile;
    item = blockIdx.x / tiles;
    first = blockIdx.x % tiles * kTile;
    count = min(lines - first, int64_t{kTile});
    column = static_cast<int64_t>(blockIdx.y) * kChunk;
  }
};

// Launches a block for each tile of `lines` lines of each item, and each chunk of `columns`.
template <typename Job>
cudaError_t LaunchOverTiles(void (*kernel)(Job), const Job& job, int64_t items, int64_t lines,
                            int64_t columns, cudaStream_t stream) {
  constexpr int64_t kMaxGridY = 65535;
  const int64_t blocks = items * ((lines + kTile - 1) / kTile);
  const int64_t chunks = std::max<int64_t>(1, (columns + kChunk - 1) / kChunk);
  if (blocks == 0) return cudaSuccess;
  if (blocks > kMaxGridX || chunks > kMaxGridY) return cudaErrorInvalidConfiguration;
  return LaunchKernel(kernel, dim3(static_cast<unsigned>(blocks), static_cast<unsigned>(chunks)),
                      kThreads, stream, job);
}

}  // namespace tensord::server::cuda
