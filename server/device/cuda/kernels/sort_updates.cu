// Sorts updates by their rows: a radix sort that begins with the lowest digit and keeps the order
// of equal digits (Satish, Harris and Garland, "Designing efficient sorting algorithms for manycore
// GPUs", 2009, section 4).
#include "tensord/server/device/cuda/kernels/launch.cuh"
#include "tensord/server/device/cuda/kernels/updates.h"

namespace tensord::server::cuda {
namespace {

constexpr int kDigitBits = 4;
constexpr int kDigits = 1 << kDigitBits;
constexpr int kPerThread = 8;
constexpr int kTileUpdates = kThreads * kPerThread;  // that a block sorts at a time

// The number of updates of a tile with each digit. A thread's row has the number of the updates of
// this thread and of all threads before it.
struct Digits {
  int counts[kThreads][kDigits + 1];  // the padding puts the rows in different banks
};

__device__ inline int DigitOf(const RowUpdate& update, int shift) {
  return static_cast<int>((update.row >> shift) & (kDigits - 1));
}

// Sets `digits` for updates[begin, end), of which each thread has kPerThread. All threads of the
// block must call it.
__device__ void CountDigits(const RowUpdate* updates, int64_t begin, int64_t end, int shift,
                            Digits& digits) {
  int own[kDigits] = {};
  const int64_t first = begin + static_cast<int64_t>(threadIdx.x) * kPerThread;
  for (int64_t i = first; i < first + kPerThread && i < end; ++i) {
    const int digit = DigitOf(updates[i], shift);
    for (int d = 0; d < kDigits; ++d) own[d] += d == digit ? 1 : 0;
  }
  for (int d = 0; d < kDigits; ++d) digits.counts[threadIdx.x][d] = own[d];
  __syncthreads();
  for (unsigned distance = 1; distance < kThreads; distance *= 2) {
    if (threadIdx.x >= distance) {
      for (int d = 0; d < kDigits; ++d) own[d] += digits.counts[threadIdx.x - distance][d];
    }
    __syncthreads();
    for (int d = 0; d < kDigits; ++d) digits.counts[threadIdx.x][d] = own[d];
    __syncthreads();
  }
}

// Writes updates[begin, end) to their sorted positions in `to`. first[d first_stride] is the
// position of the tile's first update with the digit d. All threads of the block must call it after
// CountDigits().
__device__ void PlaceUpdates(const RowUpdate* updates, int64_t begin, int64_t end, int shift,
                             const Digits& digits, const int64_t* first, int64_t first_stride,
                             RowUpdate* to) {
  int64_t place[kDigits];
  for (int d = 0; d < kDigits; ++d) {
    place[d] = first[d * first_stride];
    if (threadIdx.x > 0) place[d] += digits.counts[threadIdx.x - 1][d];
  }
  const int64_t start = begin + static_cast<int64_t>(threadIdx.x) * kPerThread;
  for (int64_t i = start; i < start + kPerThread && i < end; ++i) {
    const RowUpdate update = updates[i];
    const int digit = DigitOf(update, shift);
    int64_t target = 0;
    for (int d = 0; d < kDigits; ++d) {
      if (d != digit) continue;
      target = place[d]++;
    }
    to[target] = update;
  }
}

// counts[d][b] = the number of updates of tile b with the digit d.
__global__ void CountKernel(const RowUpdate* updates, int64_t count, int shift, int64_t tiles,
                            int64_t* counts) {
  __shared__ Digits digits;
  for (int64_t tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    const int64_t begin = tile * kTileUpdates;
    CountDigits(updates, begin, min(count, begin + kTileUpdates), shift, digits);
    if (threadIdx.x < kDigits) {
      counts[threadIdx.x * tiles + tile] = digits.counts[kThreads - 1][threadIdx.x];
    }
    __syncthreads();  // the next tile overwrites the digits
  }
}

// Replaces each of `n` numbers by the sum of those before it. Must be launched with one block.
__global__ void SumBeforeKernel(int64_t* numbers, int64_t n) {
  __shared__ int64_t sums[kThreads];
  int64_t before = 0;
  for (int64_t begin = 0; begin < n; begin += kThreads) {
    const int64_t i = begin + threadIdx.x;
    const int64_t number = i < n ? numbers[i] : 0;
    int64_t sum = number;
    sums[threadIdx.x] = sum;
    __syncthreads();
    for (unsigned distance = 1; distance < kThreads; distance *= 2) {
      if (threadIdx.x >= distance) sum += sums[threadIdx.x - distance];
      __syncthreads();
      sums[threadIdx.x] = sum;
      __syncthreads();
    }
    if (i < n) numbers[i] = before + sum - number;
    before += sums[kThreads - 1];
    __syncthreads();  // the next numbers overwrite the sums
  }
}

__global__ void PlaceKernel(const RowUpdate* updates, int64_t count, int shift, int64_t tiles,
                            const int64_t* first, RowUpdate* to) {
  __shared__ Digits digits;
  for (int64_t tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    const int64_t begin = tile * kTileUpdates, end = min(count, begin + kTileUpdates);
    CountDigits(updates, begin, end, shift, digits);
    PlaceUpdates(updates, begin, end, shift, digits, first + tile, tiles, to);
    __syncthreads();  // the next tile overwrites the digits
  }
}

// Sorts up to kTileUpdates updates by `passes` digits. Must be launched with one block.
__global__ void SortTileKernel(RowUpdate* updates, RowUpdate* spare, int64_t count, int passes) {
  __shared__ Digits digits;
  __shared__ int64_t first[kDigits];
  for (int pass = 0; pass < passes; ++pass) {
    RowUpdate* const from = pass % 2 == 0 ? updates : spare;
    RowUpdate* const to = pass % 2 == 0 ? spare : updates;
    CountDigits(from, 0, count, pass * kDigitBits, digits);
    if (threadIdx.x == 0) {
      int64_t sum = 0;
      for (int d = 0; d < kDigits; ++d) {
        first[d] = sum;
        sum += digits.counts[kThreads - 1][d];
      }
    }
    __syncthreads();
    PlaceUpdates(from, 0, count, pass * kDigitBits, digits, first, 1, to);
    __syncthreads();  // the next pass reads what this one has written
  }
}

int64_t Tiles(int64_t count) { return (count + kTileUpdates - 1) / kTileUpdates; }

// Returns the number of digits of the largest row.
int Passes(int64_t rows) {
  int passes = 0;
  for (int64_t left = rows - 1; left > 0; left >>= kDigitBits) ++passes;
  return passes;
}

cudaError_t SortByDigit(const RowUpdate* from, RowUpdate* to, int64_t count, int shift,
                        int64_t* counts, cudaStream_t stream) {
  const int64_t tiles = Tiles(count);
  const auto blocks = static_cast<unsigned>(std::min(tiles, kMaxGridX));
  cudaError_t error =
      LaunchKernel(CountKernel, blocks, kThreads, stream, from, count, shift, tiles, counts);
  if (error != cudaSuccess) return error;
  error = LaunchKernel(SumBeforeKernel, 1, kThreads, stream, counts, kDigits * tiles);
  if (error != cudaSuccess) return error;
  return LaunchKernel(PlaceKernel, blocks, kThreads, stream, from, count, shift, tiles, counts, to);
}

}  // namespace

int64_t SortScratchBytes(int64_t count) {
  return count * static_cast<int64_t>(sizeof(RowUpdate)) +
         kDigits * Tiles(count) * static_cast<int64_t>(sizeof(int64_t));
}

cudaError_t LaunchSortUpdates(RowUpdate* updates, int64_t count, int64_t rows, void* scratch,
                              const RowUpdate** sorted, cudaStream_t stream) {
  auto* const spare = static_cast<RowUpdate*>(scratch);
  const int passes = Passes(rows);
  *sorted = passes % 2 == 0 ? updates : spare;
  if (passes == 0) return cudaSuccess;
  if (count <= kTileUpdates) {
    return LaunchKernel(SortTileKernel, 1, kThreads, stream, updates, spare, count, passes);
  }
  auto* const counts = reinterpret_cast<int64_t*>(spare + count);
  for (int pass = 0; pass < passes; ++pass) {
    const cudaError_t error =
        SortByDigit(pass % 2 == 0 ? updates : spare, pass % 2 == 0 ? spare : updates, count,
                    pass * kDigitBits, counts, stream);
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

}  // namespace tensord::server::cuda
