// Kernels of sort and topk.
#include <string.h>

#include <algorithm>

#include "absl/container/inlined_vector.h"
#include "tensord/common/util/status_macros.h"
#include "tensord/server/device/cpu/item_sorter.h"
#include "tensord/server/device/cpu/kernel_table.h"
#include "tensord/server/device/cpu/storage_types.h"
#include "tensord/server/device/cpu/tiles.h"
#include "tensord/server/device/stop_token.h"

namespace tensord::server::cpu {
namespace {

// If there are fewer rows than threads, the threads share each row of at least this length.
constexpr int64_t kMinSharedRow = 128 * 1024;
// topk selects at most this number of elements. For more, it sorts the row.
constexpr int64_t kMaxSelected = 64 * 1024;
// Packed items have 32 bits for an index, and for the number of items.
constexpr int64_t kMaxPackedRow = 0xffffffff;

// Dense rows to sort. The first k elements of each sorted row, and their indices, are the result.
struct Rows {
  int64_t count;
  int64_t n;  // > 0
  int64_t k;  // 0 < k <= n
  bool descending;
  const void* x;     // [count][n]
  void* values;      // [count][k]
  int64_t* indices;  // [count][k]
};

using RowsFunction = absl::Status (*)(const Context& ctx, const KernelCall& call, const Rows& rows);

bool SharesRows(const Context& ctx, const Rows& rows) {
  return rows.count < ctx.team.threads() && rows.n >= kMinSharedRow;
}

// Calls fn(team, row, worker) for each row. If the threads share rows, `team` is the whole team,
// and there is one worker. Otherwise each worker is one thread, which is its own team. The number
// of workers is WorkerCount(). `cost` is the time for an element, relative to a cheap elementwise
// op.
template <typename Fn>
void ForEachRow(const Context& ctx, const Rows& rows, double cost, Fn fn) {
  if (SharesRows(ctx, rows)) {
    for (int64_t row = 0; row < rows.count && !MustStop(); ++row) fn(ctx.team, row, 0);
    return;
  }
  const Team alone(1);
  const double grain = kGrainElements / cost / static_cast<double>(rows.n);
  ctx.team.For(rows.count, grain, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) fn(alone, row, Team::Current());
  });
}

int64_t WorkerCount(const Context& ctx, const Rows& rows) {
  return SharesRows(ctx, rows) ? 1 : std::min<int64_t>(ctx.team.threads(), rows.count);
}

// Writes elements of the sorted row to the results.
template <typename T, typename Item>
class RowSink {
 public:
  RowSink(const Rows& rows, int64_t row)
      : descending_(rows.descending),
        k_(rows.k),
        x_(static_cast<const T*>(rows.x) + row * rows.n),
        values_(static_cast<T*>(rows.values) + row * rows.k),
        indices_(rows.indices + row * rows.k) {}

  void operator()(int64_t position, const Item& item) const {
    if (position >= k_) return;
    const int64_t index = IndexOf(item);
    const auto inverted = static_cast<SortKey<T>>(KeyOf(item));
    const auto key = descending_ ? static_cast<SortKey<T>>(~inverted) : inverted;
    // Reading the element would take longer, because the items' indices are in no order.
    values_[position] = KeyDeterminesElement<T>(key) ? ElementOfKey<T>(key) : x_[index];
    indices_[position] = index;
  }

 private:
  const bool descending_;
  const int64_t k_;
  const T* const x_;
  T* const values_;
  int64_t* const indices_;
};

template <typename T, typename Item>
absl::Status SortRows(const Context& ctx, const KernelCall& call, const Rows& rows) {
  constexpr int kKeyBits = 8 * sizeof(T);
  const Team alone(1);
  const int64_t bytes =
      ItemSorter<Item>::ScratchBytes(SharesRows(ctx, rows) ? ctx.team : alone, rows.n, kKeyBits);
  TENSORD_ASSIGN_OR_RETURN(const Scratch scratch,
                           MakeScratch(call, bytes * WorkerCount(ctx, rows)));
  ForEachRow(ctx, rows, 32, [&](const Team& team, int64_t row, int worker) {
    const T* const x = static_cast<const T*>(rows.x) + row * rows.n;
    ItemSorter<Item>(team, rows.n, kKeyBits, scratch.As<char>() + worker * bytes)
        .Sort([x, descending = rows.descending](
                  int64_t i) { return SortItemOf<T, Item>(x[i], i, descending); },
              RowSink<T, Item>(rows, row));
  });
  return absl::OkStatus();
}

// Collects the k least items of the elements that were added, and possibly more items.
template <typename T, typename Item>
class Candidates {
 public:
  // Returns the number of items for which `items` must have room.
  static int64_t Capacity(int64_t k) { return 2 * k + kBlock; }

  Candidates(const Loops& loops, int64_t k, bool descending, Item* items)
      : is_behind_(loops.binary[static_cast<int>(
            descending ? BinaryFunction::kLe : BinaryFunction::kGe)][Index(kDTypeOfStorage<T>)]),
        k_(k),
        capacity_(Capacity(k)),
        descending_(descending),
        items_(items) {}

  Item* items() { return items_; }
  int64_t count() const { return count_; }

  // Adds the elements [begin, end) of the row. All elements that were added before have smaller
  // indices. If the op must stop, returns early.
  void Add(const T* x, int64_t begin, int64_t end) {
    Team::InPieces(begin, end, kGrainElements, [&](int64_t first, int64_t last) {
      for (; first < last && !closed_; first += kBlock) {
        AddBlock(x, first, std::min(kBlock, last - first));
      }
    });
  }

 private:
  using Key = SortKey<T>;
  static constexpr int64_t kBlock = 64;
  static constexpr Key kHighestKey = static_cast<Key>(~Key{0});

  Key KeyFor(T value) const {
    const Key key = SortKeyOf(value);
    return descending_ ? static_cast<Key>(~key) : key;
  }

  void AddBlock(const T* x, int64_t first, int64_t n) {
    if (count_ + n > capacity_) Compact(x);
    if (limit_ == kHighestKey) return AddAll(x, first, n);
    if (is_behind_ != nullptr) return AddIfNotBehind(x, first, n);
    Key least = kHighestKey;
    for (int64_t i = first; i < first + n; ++i) least = std::min(least, KeyFor(x[i]));
    if (least <= limit_) AddAll(x, first, n);
  }

  void AddAll(const T* x, int64_t first, int64_t n) {
    for (int64_t i = first; i < first + n; ++i) {
      const Key key = KeyFor(x[i]);
      items_[count_] = MakeSortItem<Item>(key, i);
      count_ += key <= limit_ ? 1 : 0;
    }
  }

  // Does the same as AddAll(), but only compares most elements with the last of the k least. No
  // comparison with a NaN holds, so for a NaN its key decides.
  void AddIfNotBehind(const T* x, int64_t first, int64_t n) {
    constexpr int kWord = 8;
    uint8_t behind[kBlock];
    if (n < kBlock) memset(behind, 1, kBlock);
    is_behind_(x + first, 1, &last_, 0, behind, n);
    for (int64_t at = 0; at < n; at += kWord) {
      uint64_t word;
      memcpy(&word, behind + at, kWord);
      if (word == kAllBehind) continue;
      for (int64_t i = at; i < at + kWord; ++i) {
        if (behind[i] != 0) continue;
        const Key key = KeyFor(x[first + i]);
        items_[count_] = MakeSortItem<Item>(key, first + i);
        count_ += key <= limit_ ? 1 : 0;
      }
    }
  }

  // Keeps the k least items. From now on, only elements with keys below the greatest of these items
  // are added.
  void Compact(const T* x) {
    std::nth_element(items_, items_ + k_ - 1, items_ + count_);
    count_ = k_;
    const auto greatest = static_cast<Key>(KeyOf(items_[k_ - 1]));
    closed_ = greatest == 0;
    limit_ = static_cast<Key>(greatest - 1);
    last_ = x[IndexOf(items_[k_ - 1])];
  }

  static constexpr uint64_t kAllBehind = 0x0101010101010101;

  // Computes whether an element is equal to another one or follows it in the order. Null if there
  // is no such loop.
  const BinaryLoop is_behind_;
  const int64_t k_;
  const int64_t capacity_;
  const bool descending_;
  Item* const items_;
  int64_t count_ = 0;
  Key limit_ = kHighestKey;  // greater keys aren't among the k least
  T last_{};                 // an element with the key after the limit, once there is a limit
  bool closed_ = false;      // no key is less than those of the k items
};

// Returns the number of parts into which a row is divided for a search.
int64_t PartCount(const Context& ctx, const Rows& rows) {
  return SharesRows(ctx, rows) ? ctx.team.threads() : 1;
}

// Writes the k least items of a row to the beginning of `items`, in order. `items` has room for
// the candidates of each part. If the op must stop, returns false.
template <typename T, typename Item>
bool SelectFromRow(const Loops& loops, const Team& team, const Rows& rows, int64_t row,
                   int64_t parts, Item* items) {
  const T* const x = static_cast<const T*>(rows.x) + row * rows.n;
  const int64_t capacity = Candidates<T, Item>::Capacity(rows.k);
  const int64_t length = (rows.n + parts - 1) / parts;
  absl::InlinedVector<Candidates<T, Item>, 1> found;
  for (int64_t part = 0; part < parts; ++part) {
    found.emplace_back(loops, rows.k, rows.descending, items + part * capacity);
  }
  team.Divide(parts, 1, [&](int64_t begin, int64_t end) {
    for (int64_t part = begin; part < end; ++part) {
      found[part].Add(x, std::min(rows.n, part * length), std::min(rows.n, (part + 1) * length));
    }
  });
  if (MustStop()) return false;  // there may be fewer than k candidates
  Item* last = items;
  for (Candidates<T, Item>& part : found) {
    last = std::copy(part.items(), part.items() + part.count(), last);
  }
  std::nth_element(items, items + rows.k - 1, last);
  std::sort(items, items + rows.k);
  return true;
}

template <typename T, typename Item>
absl::Status SelectFromRows(const Context& ctx, const KernelCall& call, const Rows& rows) {
  const int64_t parts = PartCount(ctx, rows);
  const int64_t items = parts * Candidates<T, Item>::Capacity(rows.k);
  TENSORD_ASSIGN_OR_RETURN(
      const Scratch scratch,
      MakeScratch(call, items * static_cast<int64_t>(sizeof(Item)) * WorkerCount(ctx, rows)));
  ForEachRow(ctx, rows, 4, [&](const Team& team, int64_t row, int worker) {
    Item* const own = scratch.As<Item>() + worker * items;
    if (!SelectFromRow<T>(ctx.loops, team, rows, row, parts, own)) return;
    const RowSink<T, Item> sink(rows, row);
    for (int64_t i = 0; i < rows.k; ++i) sink(i, own[i]);
  });
  return absl::OkStatus();
}

template <typename T>
struct SortFamily {
  static absl::Status Run(const Context& ctx, const KernelCall& call, const Rows& rows) {
    return rows.n > kMaxPackedRow ? SortRows<T, WideSortItem>(ctx, call, rows)
                                  : SortRows<T, SortItem<T>>(ctx, call, rows);
  }
};

template <typename T>
struct TopKFamily {
  static absl::Status Run(const Context& ctx, const KernelCall& call, const Rows& rows) {
    if (rows.k > rows.n / 4 || rows.k > kMaxSelected) return SortFamily<T>::Run(ctx, call, rows);
    return rows.n > kMaxPackedRow ? SelectFromRows<T, WideSortItem>(ctx, call, rows)
                                  : SelectFromRows<T, SortItem<T>>(ctx, call, rows);
  }
};

constexpr FunctionByDType<RowsFunction> kSort =
    RunByDType<RowsFunction, SortFamily>(AllStorageTypes());
constexpr FunctionByDType<RowsFunction> kTopK =
    RunByDType<RowsFunction, TopKFamily>(NumericStorageTypes());

// Matrices of `rows` rows whose columns are contiguous in `from`. In `to`, the rows are contiguous.
// All strides are in elements.
struct Exchange {
  int64_t count, rows, columns;
  const void* from;
  int64_t from_stride, from_row;  // from a matrix to the next one, and from a row to the next one
  void* to;
  int64_t to_stride, to_column;
};

// Transposes the matrices.
void ExchangeAxes(const Context& ctx, const Exchange& job, int64_t element_bytes) {
  constexpr int64_t kTileRows = 64, kTileColumns = 512;
  const int64_t row_tiles = (job.rows + kTileRows - 1) / kTileRows;
  const int64_t column_tiles = (job.columns + kTileColumns - 1) / kTileColumns;
  const TransposeLoop transpose = ctx.loops.transpose[SizeIndex(element_bytes)];
  const double tile_elements = static_cast<double>(std::min(job.rows, kTileRows)) *
                               static_cast<double>(std::min(job.columns, kTileColumns));
  const int64_t tiles = row_tiles * column_tiles;
  ctx.team.For(job.count * tiles, kGrainElements / tile_elements, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t matrix = i / tiles, tile = i % tiles;
      const int64_t row = tile / column_tiles * kTileRows;
      const int64_t column = tile % column_tiles * kTileColumns;
      const int64_t from = matrix * job.from_stride + row * job.from_row + column;
      const int64_t to = matrix * job.to_stride + column * job.to_column + row;
      transpose(Advance(job.from, from * element_bytes), job.from_row,
                Advance(job.to, to * element_bytes), job.to_column,
                std::min(kTileRows, job.rows - row), std::min(kTileColumns, job.columns - column));
    }
  });
}

// Sorts along an axis that isn't the last: rows of `x` (outer, n, inner) along n. Copies a block of
// the rows so that they are contiguous, sorts them, and copies the results back.
class MovedAxis {
 public:
  MovedAxis(const Context& ctx, const KernelCall& call, const Rows& rows, int64_t inner)
      : ctx_(ctx),
        call_(call),
        rows_(rows),
        size_(SizeOf(call.inputs[0].spec->dtype)),
        outer_(rows.count / inner),
        inner_(inner) {
    const int64_t block =
        std::max(kBlockBytes / (rows.n * size_ + rows.k * (size_ + 8)), MinRows());
    // A block has all rows of some indices of `outer`, or some rows of one index.
    block_outer_ = EvenTileLength(outer_, std::clamp<int64_t>(block / inner, 1, outer_));
    block_inner_ = EvenTileLength(inner, std::min(block, inner));
  }

  absl::Status Run(RowsFunction run) {
    const int64_t count = block_outer_ * block_inner_;
    TENSORD_ASSIGN_OR_RETURN(x_, MakeScratch(call_, count * rows_.n * size_));
    TENSORD_ASSIGN_OR_RETURN(values_, MakeScratch(call_, count * rows_.k * size_));
    TENSORD_ASSIGN_OR_RETURN(indices_, MakeScratch(call_, count * rows_.k * 8));
    for (int64_t outer = 0; outer < outer_; outer += block_outer_) {
      for (int64_t inner = 0; inner < inner_; inner += block_inner_) {
        TENSORD_RETURN_IF_ERROR(CheckStop());
        TENSORD_RETURN_IF_ERROR(RunBlock(run, outer, inner));
      }
    }
    return absl::OkStatus();
  }

 private:
  static constexpr int64_t kBlockBytes = 128 << 20;

  // Returns the number of rows that keep all threads busy.
  int64_t MinRows() const { return rows_.n >= kMinSharedRow ? 1 : 4 * ctx_.team.threads(); }

  absl::Status RunBlock(RowsFunction run, int64_t outer, int64_t inner) {
    const int64_t count = std::min(block_outer_, outer_ - outer);
    const int64_t columns = std::min(block_inner_, inner_ - inner);
    const int64_t n = rows_.n, k = rows_.k;
    ExchangeAxes(ctx_,
                 {count, n, columns, Advance(rows_.x, (outer * n * inner_ + inner) * size_),
                  n * inner_, inner_, x_.data(), columns * n, n},
                 size_);
    Rows block = rows_;
    block.count = count * columns;
    block.x = x_.data();
    block.values = values_.data();
    block.indices = indices_.As<int64_t>();
    TENSORD_RETURN_IF_ERROR(run(ctx_, call_, block));
    const int64_t result = outer * k * inner_ + inner;
    const auto move_back = [&](const void* from, void* to, int64_t bytes) {
      ExchangeAxes(ctx_,
                   {count, columns, k, from, columns * k, k, Advance(to, result * bytes),
                    k * inner_, inner_},
                   bytes);
    };
    move_back(values_.data(), rows_.values, size_);
    move_back(indices_.data(), rows_.indices, 8);
    return absl::OkStatus();
  }

  const Context& ctx_;
  const KernelCall& call_;
  const Rows& rows_;
  const int64_t size_, outer_, inner_;
  int64_t block_outer_, block_inner_;
  Scratch x_, values_, indices_;
};

absl::Status RunAlongAxis(const Context& ctx, const KernelCall& call,
                          const FunctionByDType<RowsFunction>& table, bool descending) {
  const RowsFunction run = table[Index(call.inputs[0].spec->dtype)];
  if (run == nullptr) return NoKernel(call);
  if (call.output().spec->num_elements() == 0) return absl::OkStatus();
  const Shape& in = call.inputs[0].spec->shape;
  const auto axis = static_cast<int>(call.attrs->Int("axis"));  // 0 for a scalar
  Rows rows = {1,
               1,
               1,
               descending,
               call.inputs[0].data,
               call.outputs[0].data,
               call.outputs[1].AsMutable<int64_t>()};
  int64_t inner = 1;
  for (int i = 0; i < in.rank(); ++i) {
    (i == axis ? rows.n : rows.count) *= in.dim(i);
    if (i > axis) inner *= in.dim(i);
  }
  if (in.rank() > 0) rows.k = call.output().spec->shape.dim(axis);
  if (inner > 1) return MovedAxis(ctx, call, rows, inner).Run(run);
  return run(ctx, call, rows);
}

absl::Status SortKernel(const Context& ctx, const KernelCall& call) {
  return RunAlongAxis(ctx, call, kSort, call.attrs->Bool("descending"));
}

absl::Status TopKKernel(const Context& ctx, const KernelCall& call) {
  return RunAlongAxis(ctx, call, kTopK, call.attrs->Bool("largest"));
}

}  // namespace

void AppendSortKernels(KernelTable& table) {
  table["sort"] = SortKernel;
  table["topk"] = TopKKernel;
}

}  // namespace tensord::server::cpu
