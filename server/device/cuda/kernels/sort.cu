#include "tensord/server/device/cuda/kernels/sort.h"

#include "tensord/server/device/cuda/kernels/launch.cuh"
#include "tensord/server/device/sort_key.h"

namespace tensord::server::cuda {
namespace {

constexpr int kThreadItems = 1 << kSortThreadItemsLog2;
static_assert(kThreads * kThreadItems == kSortTileItems);

// ---------------------------------------------------------------- elements and items

// The size of the axis, and the product of the sizes after it, with their dividers.
struct AxisDividers {
  AxisDividers(int64_t extent, int64_t inner)
      : extent(extent), inner(inner), by_extent(extent, false), by_inner(inner, false) {}

  int64_t extent, inner;
  Divider by_extent, by_inner;
};

// The row of an element, its index in the row, and the indices of the outer and the inner axes.
struct AxisPosition {
  __device__ AxisPosition(const AxisDividers& axis, int64_t element) {
    const auto before = static_cast<int64_t>(axis.by_inner.DivideWide(element));
    inner = element - before * axis.inner;
    outer = static_cast<int64_t>(axis.by_extent.DivideWide(before));
    index = before - outer * axis.extent;
    row = outer * axis.inner + inner;
  }

  int64_t row, index, outer, inner;
};

template <typename T>
__global__ void MakeItemsKernel(const T* in, SortItem<T>* items, AxisDividers axis, int64_t size,
                                bool descending) {
  for (int64_t i = FirstIndex(); i < size; i += IndexStep()) {
    const AxisPosition at(axis, i);
    items[at.row * axis.extent + at.index] = SortItemOf<T>(in[i], at.index, descending);
  }
}

struct MakeItems {
  template <typename T>
  static cudaError_t Launch(const SortAxis& axis, void* items, cudaStream_t stream) {
    const int64_t size = axis.rows * axis.n;
    return LaunchKernel(MakeItemsKernel<T>, GridSize(size), kThreads, stream,
                        static_cast<const T*>(axis.in), static_cast<SortItem<T>*>(items),
                        AxisDividers(axis.n, axis.inner), size, axis.descending);
  }
};

// Returns an element as the results have it: a bool is 0 or 1.
template <typename T>
__device__ T ResultOf(T value) {
  if constexpr (std::is_same_v<T, Bool>) {
    return Narrow<Bool>(Widen(value));
  } else {
    return value;
  }
}

template <typename T>
__global__ void StoreSortedKernel(const T* in, int64_t n, const SortItem<T>* items, int64_t stride,
                                  AxisDividers axis, int64_t size, T* values, int64_t* indices) {
  for (int64_t i = FirstIndex(); i < size; i += IndexStep()) {
    const AxisPosition at(axis, i);
    const int64_t index = IndexOf(items[at.row * stride + at.index]);
    values[i] = ResultOf(in[(at.outer * n + index) * axis.inner + at.inner]);
    indices[i] = index;
  }
}

struct StoreSorted {
  template <typename T>
  static cudaError_t Launch(const SortAxis& axis, const void* items, int64_t stride,
                            cudaStream_t stream) {
    const int64_t size = axis.rows * axis.k;
    return LaunchKernel(
        StoreSortedKernel<T>, GridSize(size), kThreads, stream, static_cast<const T*>(axis.in),
        axis.n, static_cast<const SortItem<T>*>(items), stride, AxisDividers(axis.k, axis.inner),
        size, static_cast<T*>(axis.values), axis.indices);
  }
};

constexpr ByDType<MakeItemsLauncher> kMakeItems =
    LaunchersFor<MakeItemsLauncher, MakeItems>(AllTypes());
constexpr ByDType<StoreSortedLauncher> kStoreSorted =
    LaunchersFor<StoreSortedLauncher, StoreSorted>(AllTypes());

// ---------------------------------------------------------------- merging

// Returns the number of items of `a` among the first `count` items of the merge of a[0, a_size) and
// b[0, b_size).
template <typename Item, typename Size>
__device__ Size MergePath(const Item* a, Size a_size, const Item* b, Size b_size, Size count) {
  Size low = count > b_size ? count - b_size : 0;
  Size high = count < a_size ? count : a_size;
  while (low < high) {
    const Size middle = (low + high) / 2;
    if (a[middle] < b[count - 1 - middle]) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

// Sets `merged` to at most kThreadItems items of the merge of a and b, from its item `first` on.
template <typename Item>
__device__ void MergeThread(const Item* a, int a_size, const Item* b, int b_size, int first,
                            Item (&merged)[kThreadItems]) {
  int i = MergePath(a, a_size, b, b_size, first);
  int j = first - i;
#pragma unroll
  for (int m = 0; m < kThreadItems; ++m) {
    if (i < a_size && (j >= b_size || a[i] < b[j])) {
      merged[m] = a[i++];
    } else if (j < b_size) {
      merged[m] = b[j++];
    }
  }
}

// Replaces the thread's items of a tile. All threads of the block must call it.
template <typename Item>
__device__ void StoreThread(Item* tile, const Item (&items)[kThreadItems]) {
  __syncthreads();  // all threads have read the tile
#pragma unroll
  for (int m = 0; m < kThreadItems; ++m) tile[threadIdx.x * kThreadItems + m] = items[m];
  __syncthreads();
}

// ---------------------------------------------------------------- tiles

template <typename Item>
__device__ Item GreatestItem() {
  if constexpr (std::is_same_v<Item, PackedSortItem>) {
    return ~Item{0};
  } else {
    return {~uint64_t{0}, ~uint64_t{0}};
  }
}

// Sorts the thread's items of a tile by an odd-even transposition sort. All threads of the block
// must call it.
template <typename Item>
__device__ void SortThread(Item* tile) {
  Item items[kThreadItems];
#pragma unroll
  for (int m = 0; m < kThreadItems; ++m) items[m] = tile[threadIdx.x * kThreadItems + m];
#pragma unroll
  for (int round = 0; round < kThreadItems; ++round) {
#pragma unroll
    for (int m = round % 2; m + 1 < kThreadItems; m += 2) {
      if (items[m + 1] < items[m]) {
        const Item swap = items[m];
        items[m] = items[m + 1];
        items[m + 1] = swap;
      }
    }
  }
  StoreThread(tile, items);
}

// Merges the runs of a tile, which have `run` items, in pairs. All threads of the block must call
// it.
template <typename Item>
__device__ void MergeInTile(Item* tile, int run) {
  const auto at = static_cast<int>(threadIdx.x * kThreadItems);
  const int start = at & ~(2 * run - 1);
  Item merged[kThreadItems];
  MergeThread(tile + start, run, tile + start + run, run, at - start, merged);
  StoreThread(tile, merged);
}

template <typename Item>
__global__ void __launch_bounds__(kThreads) SortTilesKernel(SortTilesJob job, int64_t tiles) {
  __shared__ Item tile[kSortTileItems];
  const auto* in = static_cast<const Item*>(job.in);
  auto* out = static_cast<Item*>(job.out);
  const int width = 1 << job.width_log2;
  for (int64_t t = blockIdx.x; t < tiles; t += gridDim.x) {
    const bool several_rows = job.tiles_per_row == 1;
    const int64_t row0 =
        several_rows ? t << (kSortTileLog2 - job.width_log2) : t / job.tiles_per_row;
    const int64_t part = several_rows ? 0 : t % job.tiles_per_row;
    for (int p = threadIdx.x; p < kSortTileItems; p += kThreads) {
      const int64_t row = row0 + (p >> job.width_log2);
      const int64_t i = part * width + (p & (width - 1));
      tile[p] = row < job.rows && i < job.n ? in[row * job.n + i] : GreatestItem<Item>();
    }
    __syncthreads();
    SortThread(tile);
    for (int run = kThreadItems; run < width; run *= 2) MergeInTile(tile, run);
    for (int p = threadIdx.x; p < kSortTileItems; p += kThreads) {
      const int64_t row = row0 + (p >> job.width_log2);
      const int i = p & (width - 1);
      if (row < job.rows && part * width + i < job.n && i < job.keep) {
        out[row * job.out_n + part * job.keep + i] = tile[p];
      }
    }
    __syncthreads();  // the next tile overwrites this one
  }
}

// ---------------------------------------------------------------- runs

// A block writes one tile of a merge at a time.
template <typename Item>
__global__ void __launch_bounds__(kThreads)
    MergeRunsKernel(MergeRunsJob job, int64_t tiles_per_row, int64_t tiles) {
  __shared__ Item tile[kSortTileItems];
  __shared__ int64_t from_a[2];
  for (int64_t t = blockIdx.x; t < tiles; t += gridDim.x) {
    const int64_t row = t / tiles_per_row;
    const int64_t first = (t - row * tiles_per_row) * kSortTileItems;
    const int64_t start = first & ~(2 * job.run - 1);
    const int64_t a_size = min(job.run, job.n - start);
    const int64_t b_size = min(job.run, job.n - start - a_size);
    const Item* a = static_cast<const Item*>(job.in) + row * job.n + start;
    const Item* b = a + a_size;
    const int64_t begin = first - start;
    const int64_t end = min(begin + kSortTileItems, a_size + b_size);
    if (threadIdx.x < 2) {
      from_a[threadIdx.x] = MergePath(a, a_size, b, b_size, threadIdx.x == 0 ? begin : end);
    }
    __syncthreads();
    const int64_t a_begin = from_a[0], b_begin = begin - a_begin;
    const auto a_part = static_cast<int>(from_a[1] - a_begin);
    const auto size = static_cast<int>(end - begin);
    for (int p = threadIdx.x; p < size; p += kThreads) {
      tile[p] = p < a_part ? a[a_begin + p] : b[b_begin + p - a_part];
    }
    __syncthreads();
    Item merged[kThreadItems] = {};
    const int at = min(static_cast<int>(threadIdx.x) * kThreadItems, size);
    MergeThread(tile, a_part, tile + a_part, size - a_part, at, merged);
    StoreThread(tile, merged);
    Item* out = static_cast<Item*>(job.out) + row * job.n + first;
    for (int p = threadIdx.x; p < size; p += kThreads) out[p] = tile[p];
    __syncthreads();  // the next tile overwrites this one
  }
}

unsigned BlockCount(int64_t tiles) {
  return static_cast<unsigned>(std::min<int64_t>(tiles, kMaxGridX));
}

}  // namespace

const ByDType<MakeItemsLauncher>& MakeItemsLaunchers() { return kMakeItems; }
const ByDType<StoreSortedLauncher>& StoreSortedLaunchers() { return kStoreSorted; }

cudaError_t LaunchSortTiles(const SortTilesJob& job, bool wide, cudaStream_t stream) {
  const int64_t rows_per_tile = kSortTileItems >> job.width_log2;
  const int64_t tiles = job.tiles_per_row == 1 ? (job.rows + rows_per_tile - 1) / rows_per_tile
                                               : job.rows * job.tiles_per_row;
  return LaunchKernel(wide ? SortTilesKernel<WideSortItem> : SortTilesKernel<PackedSortItem>,
                      BlockCount(tiles), kThreads, stream, job, tiles);
}

cudaError_t LaunchMergeRuns(const MergeRunsJob& job, bool wide, cudaStream_t stream) {
  const int64_t tiles_per_row = (job.n + kSortTileItems - 1) / kSortTileItems;
  const int64_t tiles = job.rows * tiles_per_row;
  return LaunchKernel(wide ? MergeRunsKernel<WideSortItem> : MergeRunsKernel<PackedSortItem>,
                      BlockCount(tiles), kThreads, stream, job, tiles_per_row, tiles);
}

}  // namespace tensord::server::cuda
