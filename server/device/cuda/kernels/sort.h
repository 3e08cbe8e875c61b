// Launchers of sort and topk.
//
// The kernels sort items (../../sort_key.h), which are distinct and have the key and the index of
// an element. A block sorts a tile of items in shared memory. Further launches merge runs of items
// to runs of twice the length. Each thread finds its part of a merge by binary search (Green,
// McColl and Bader, "GPU Merge Path", ICS 2012).
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "tensord/server/device/cuda/kernels/dispatch.h"
#include "tensord/server/device/cuda/kernels/strided_loop.h"

namespace tensord::server::cuda {

inline constexpr int kSortTileLog2 = 11;
inline constexpr int kSortTileItems = 1 << kSortTileLog2;
// A thread sorts this number of items before the first merge.
inline constexpr int kSortThreadItemsLog2 = 3;

// A tensor of shape (outer, n, inner) that is sorted along n. The number of a row is outer index ·
// inner + inner index. The results have the shape (outer, k, inner).
struct SortAxis {
  const void* in = nullptr;
  void* values = nullptr;
  int64_t* indices = nullptr;
  int64_t rows = 0;  // outer · inner
  int64_t n = 0;     // at most kMaxSortedRow
  int64_t k = 0;
  int64_t inner = 0;
  bool descending = false;
};
// Packed items have 32 bits for an index, and the largest one marks the end of a tile.
inline constexpr int64_t kMaxSortedRow = 0xffffffff;

// Returns true if the dtype's items are wide (16 bytes), false if they are packed (8 bytes).
constexpr bool HasWideItems(int64_t element_bytes) { return element_bytes == 8; }

// Writes the items of all elements: [rows][n].
using MakeItemsLauncher = cudaError_t (*)(const SortAxis& axis, void* items, cudaStream_t stream);
const ByDType<MakeItemsLauncher>& MakeItemsLaunchers();

// Writes the elements and the indices of the first k items of each row of items: [rows][stride].
using StoreSortedLauncher = cudaError_t (*)(const SortAxis& axis, const void* items, int64_t stride,
                                            cudaStream_t stream);
const ByDType<StoreSortedLauncher>& StoreSortedLaunchers();

// Sorts each tile of in[rows][n]. If n is at most 2^width_log2, a tile has several rows. Otherwise
// width_log2 is kSortTileLog2, and a row has several tiles. Writes the first `keep` items of each
// tile's part of a row to out[rows][out_n], one tile after the other.
struct SortTilesJob {
  const void* in = nullptr;
  void* out = nullptr;
  int64_t rows = 0;
  int64_t n = 0;
  int64_t out_n = 0;
  int keep = 0;
  int width_log2 = 0;  // kSortThreadItemsLog2 .. kSortTileLog2
  int64_t tiles_per_row = 0;
};
cudaError_t LaunchSortTiles(const SortTilesJob& job, bool wide, cudaStream_t stream);

// Merges neighbouring runs of in[rows][n] in pairs. `run`, their length, is a multiple of
// kSortTileItems and a power of two. The last run of a row may be shorter.
struct MergeRunsJob {
  const void* in = nullptr;
  void* out = nullptr;
  int64_t rows = 0;
  int64_t n = 0;
  int64_t run = 0;
};
cudaError_t LaunchMergeRuns(const MergeRunsJob& job, bool wide, cudaStream_t stream);

}  // namespace tensord::server::cuda
