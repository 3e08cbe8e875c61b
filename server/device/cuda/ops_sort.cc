// The ops sort, topk, searchsorted and nonzero.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tensord/common/util/status_macros.h"
#include "tensord/server/device/cuda/kernel_table.h"
#include "tensord/server/device/cuda/kernels/search.h"
#include "tensord/server/device/cuda/kernels/sort.h"

namespace tensord::server::cuda {
namespace {

// ---------------------------------------------------------------- sort, topk

// If topk selects at most this number of elements, each launch keeps at most half of the items.
constexpr int64_t kMaxSelected = kSortTileItems / 2;

// The items of all rows: [rows][n].
struct Items {
  Scratch memory;
  int64_t n;
};

int64_t TilesPerRow(int64_t n) { return (n + kSortTileItems - 1) / kSortTileItems; }

// Returns the logarithm of the number of items for which a row has room in a tile: the smallest
// power of two that is at least `n` and the items of a thread, but at most a tile.
int TileWidthLog2(int64_t n) {
  int log2 = kSortThreadItemsLog2;
  while (log2 < kSortTileLog2 && (int64_t{1} << log2) < n) ++log2;
  return log2;
}

class Sorter {
 public:
  Sorter(const KernelCall& call, KernelContext& context, const SortAxis& axis)
      : call_(call),
        context_(context),
        axis_(axis),
        dtype_(DTypeNumber(call.inputs[0])),
        wide_(HasWideItems(SizeOf(call.inputs[0].spec->dtype))) {}

  absl::Status Sort() {
    TENSORD_ASSIGN_OR_RETURN(Items items, MakeItems());
    TENSORD_ASSIGN_OR_RETURN(Items other, Allocate(axis_.n));
    TENSORD_RETURN_IF_ERROR(SortTiles(items, other, kSortTileItems));
    for (int64_t run = kSortTileItems; run < axis_.n; run *= 2) {
      std::swap(items, other);
      TENSORD_RETURN_IF_ERROR(Check(
          LaunchMergeRuns({items.memory.data(), other.memory.data(), axis_.rows, axis_.n, run},
                          wide_, context_.stream)));
    }
    return Store(other);
  }

  // Sorts each tile and keeps its first k items, until a row has one tile.
  absl::Status Select() {
    TENSORD_ASSIGN_OR_RETURN(Items items, MakeItems());
    bool one_tile = false;
    while (!one_tile) {
      const int64_t tiles = TilesPerRow(items.n);
      one_tile = tiles == 1;
      const int64_t in_last_tile = items.n - (tiles - 1) * kSortTileItems;
      TENSORD_ASSIGN_OR_RETURN(Items kept,
                               Allocate((tiles - 1) * axis_.k + std::min(axis_.k, in_last_tile)));
      TENSORD_RETURN_IF_ERROR(SortTiles(items, kept, axis_.k));
      items = std::move(kept);
    }
    return Store(items);
  }

 private:
  absl::StatusOr<Items> Allocate(int64_t n) {
    TENSORD_ASSIGN_OR_RETURN(Scratch memory,
                             MakeScratch(context_, axis_.rows * n * (wide_ ? 16 : 8)));
    return Items{std::move(memory), n};
  }

  absl::StatusOr<Items> MakeItems() {
    TENSORD_ASSIGN_OR_RETURN(Items items, Allocate(axis_.n));
    TENSORD_RETURN_IF_ERROR(
        Check(MakeItemsLaunchers()[dtype_](axis_, items.memory.data(), context_.stream)));
    return items;
  }

  absl::Status SortTiles(const Items& in, const Items& out, int64_t keep) {
    SortTilesJob job;
    job.in = in.memory.data();
    job.out = out.memory.data();
    job.rows = axis_.rows;
    job.n = in.n;
    job.out_n = out.n;
    job.keep = static_cast<int>(keep);
    job.width_log2 = TileWidthLog2(in.n);
    job.tiles_per_row = TilesPerRow(in.n);
    return Check(LaunchSortTiles(job, wide_, context_.stream));
  }

  absl::Status Store(const Items& sorted) {
    return Check(
        StoreSortedLaunchers()[dtype_](axis_, sorted.memory.data(), sorted.n, context_.stream));
  }

  absl::Status Check(cudaError_t error) { return LaunchStatus(call_, error); }

  const KernelCall& call_;
  KernelContext& context_;
  const SortAxis& axis_;
  const int dtype_;
  const bool wide_;
};

// Describes the input's axis and the results.
SortAxis AxisOf(const KernelCall& call, bool descending) {
  SortAxis axis;
  axis.in = call.inputs[0].data;
  axis.values = call.outputs[0].data;
  axis.indices = call.outputs[1].AsMutable<int64_t>();
  axis.rows = axis.n = axis.k = axis.inner = 1;
  axis.descending = descending;
  const Shape& in = call.inputs[0].spec->shape;
  const auto number = static_cast<int>(call.attrs->Int("axis"));  // 0 for a scalar
  for (int d = 0; d < in.rank(); ++d) {
    (d == number ? axis.n : axis.rows) *= in.dim(d);
    if (d > number) axis.inner *= in.dim(d);
  }
  if (in.rank() > 0) axis.k = call.output().spec->shape.dim(number);
  return axis;
}

absl::Status RunAlongAxis(const KernelCall& call, KernelContext& context, bool descending) {
  if (call.output().spec->num_elements() == 0) return absl::OkStatus();
  if (MakeItemsLaunchers()[DTypeNumber(call.inputs[0])] == nullptr) return NoKernelError(call);
  const SortAxis axis = AxisOf(call, descending);
  if (axis.n > kMaxSortedRow) {
    return absl::UnimplementedError(absl::StrCat(call.schema->name, ": a GPU sorts at most ",
                                                 kMaxSortedRow,
                                                 " elements along an axis, and these are ", axis.n,
                                                 ": use a CPU device, or split the tensor"));
  }
  Sorter sorter(call, context, axis);
  return axis.k < axis.n && axis.k <= kMaxSelected ? sorter.Select() : sorter.Sort();
}

absl::Status RunSort(const KernelCall& call, KernelContext& context) {
  return RunAlongAxis(call, context, call.attrs->Bool("descending"));
}

absl::Status RunTopK(const KernelCall& call, KernelContext& context) {
  return RunAlongAxis(call, context, call.attrs->Bool("largest"));
}

// ---------------------------------------------------------------- searchsorted, nonzero

absl::Status RunSearchSorted(const KernelCall& call, KernelContext& context) {
  const Operand& sorted = call.inputs[0];
  SearchJob job;
  const int64_t size = call.output().spec->num_elements();
  if (size == 0) return absl::OkStatus();
  const SearchLauncher launch = SearchLaunchers()[DTypeNumber(sorted)];
  if (launch == nullptr) return NoKernelError(call);
  const Shape& shape = sorted.spec->shape;
  job.sorted = sorted.data;
  job.x = call.inputs[1].data;
  job.out = call.output().AsMutable<int64_t>();
  job.rows = 1;
  for (int d = 0; d + 1 < shape.rank(); ++d) job.rows *= shape.dim(d);
  job.n = shape.dim(shape.rank() - 1);
  job.m = size / job.rows;
  job.right = call.attrs->Bool("right");
  return LaunchStatus(call, launch(job, context.stream));
}

// Returns a mask: an element isn't zero if it has at least one of these bits.
uint64_t NonzeroMask(DType dtype) {
  if (!IsFloating(dtype)) return ~uint64_t{0};
  return (uint64_t{1} << (8 * SizeOf(dtype) - 1)) - 1;  // without the sign
}

absl::Status RunNonzero(const KernelCall& call, KernelContext& context) {
  const TensorSpec& in = *call.inputs[0].spec;
  const TensorSpec& out = *call.output().spec;
  if (out.num_elements() == 0) return absl::OkStatus();
  if (in.num_elements() == 0) {
    return LaunchStatus(call,
                        cudaMemsetAsync(call.output().data, 0, out.size_bytes(), context.stream));
  }
  NonzeroJob job;
  job.in = call.inputs[0].data;
  job.n = in.num_elements();
  job.mask = NonzeroMask(in.dtype);
  constexpr int64_t kMinChunk = 2048;
  job.blocks = static_cast<int>(std::clamp<int64_t>(job.n / kMinChunk, 1, NonzeroJob::kMaxBlocks));
  job.chunk = (job.n + job.blocks - 1) / job.blocks;
  job.out = call.output().AsMutable<int64_t>();
  job.size = out.shape.dim(1);
  job.rank = in.shape.rank();
  for (int d = 0; d < job.rank; ++d) {
    job.extent[d] = in.shape.dim(d);
    job.divider[d] = Divider(job.extent[d], false);
  }
  TENSORD_ASSIGN_OR_RETURN(const Scratch counts, MakeScratch(context, job.blocks * 8));
  job.counts = static_cast<int64_t*>(counts.data());
  return LaunchStatus(call, LaunchNonzero(job, static_cast<int>(SizeOf(in.dtype)), context.stream));
}

}  // namespace

void AppendSortKernels(KernelTable& table) {
  table["sort"] = RunSort;
  table["topk"] = RunTopK;
  table["searchsorted"] = RunSearchSorted;
  table["nonzero"] = RunNonzero;
}

}  // namespace tensord::server::cuda
