#include "tensord/server/device/cpu/reduce_step.h"

#include <string.h>

#include <algorithm>

#include "tensord/server/device/cpu/strided_copy.h"

namespace tensord::server::cpu {
namespace {

constexpr int64_t kLeafElements = 1024;      // of a row
constexpr int64_t kLeafRows = 32;            // of columns
constexpr int64_t kReduceTileColumns = 256;  // the number of columns that are reduced at a time
constexpr int64_t kLeavesPerChunk = 32;      // a power of two, so that a chunk is a subtree
constexpr int64_t kRowChunkElements = kLeavesPerChunk * kLeafElements;  // of a row
constexpr int64_t kNarrowColumns = 64;  // with fewer columns, several rows are read as one
constexpr int64_t kMaxAccBytes = sizeof(Moments);
constexpr int64_t kWideBytes = 4;  // of a 16-bit element after conversion to float32 or int32

// Combines leaves pairwise, like a binary counter: the two halves of a subtree are combined as soon
// as both are complete. The order of operations depends only on the number of leaves.
class Tree {
 public:
  // Each leaf is `width` accumulators of `acc_bytes` each.
  Tree(const ReductionLoops& loops, int64_t acc_bytes, int64_t width)
      : loops_(loops), bytes_(acc_bytes * width), width_(width) {}

  // Returns the memory for the next leaf. The caller fills it, then calls Push().
  char* next() {
    const int64_t needed = (depth_ + 1) * bytes_;
    if (static_cast<int64_t>(stack_.size()) < needed) stack_.resize(needed);
    return stack_.data() + depth_ * bytes_;
  }

  void Push() {
    ++depth_;
    for (int64_t i = leaves_++; (i & 1) != 0; i >>= 1) Merge();
  }

  // If there is no leaf, because the op must stop, does nothing.
  void Finish(void* result) {
    if (depth_ == 0) return;
    while (depth_ > 1) Merge();
    memcpy(result, stack_.data(), bytes_);
  }

 private:
  void Merge() {
    char* right = stack_.data() + (depth_ - 1) * bytes_;
    loops_.combine(right - bytes_, right, width_);
    --depth_;
  }

  const ReductionLoops& loops_;
  const int64_t bytes_;
  const int64_t width_;
  std::vector<char> stack_;
  int64_t depth_ = 0;
  int64_t leaves_ = 0;
};

// An extreme has no rounding errors, so it needs no small leaves.
bool IsExtreme(Reduction reduction) {
  return reduction == Reduction::kMax || reduction == Reduction::kMin ||
         reduction == Reduction::kMaxAbs || reduction == Reduction::kMinAbs;
}

// One reduction. Run() uses the whole team.
class Step {
 public:
  Step(const Context& ctx, Reduction reduction, DType dtype, const void* x,
       const ReduceShape& shape, double power, void* acc)
      : ctx_(ctx),
        loops_(ReductionLoopsOf(ctx, reduction, dtype)),
        dtype_(dtype),
        size_(dtype == DType::kUnspecified ? loops_.acc_bytes : SizeOf(dtype)),
        acc_size_(loops_.acc_bytes),
        one_leaf_(IsExtreme(reduction) && !Is16Bit(dtype)),
        x_(static_cast<const char*>(x)),
        shape_(shape),
        power_(power),
        acc_(static_cast<char*>(acc)) {}

  void Run() {
    if (shape_.extent == 0) return FillIdentity();
    if (shape_.inner == 1) return Rows();
    Columns();
  }

 private:
  void FillIdentity() {
    alignas(Moments) char identity[kMaxAccBytes];
    loops_.rows(x_, 1, 0, power_, identity);
    Fill(ctx_, identity, acc_size_, acc_, shape_.outer * shape_.inner);
  }

  // ---- inner == 1: each output is the reduction of a contiguous row

  void Rows() {
    if (shape_.outer >= ctx_.team.threads() || shape_.extent < 2 * kRowChunkElements) {
      const double grain = kGrainElements / static_cast<double>(shape_.extent);
      ctx_.team.For(shape_.outer, grain, [&](int64_t begin, int64_t end) {
        if (shape_.extent <= kLeafElements) {
          return LeafRows(RowOf(begin), end - begin, acc_ + begin * acc_size_);
        }
        for (int64_t o = begin; o < end; ++o) Row(RowOf(o), shape_.extent, acc_ + o * acc_size_);
      });
      return;
    }
    for (int64_t o = 0; o < shape_.outer; ++o) RowInParallel(RowOf(o), acc_ + o * acc_size_);
  }

  // Converts n 16-bit elements to ComputeDType().
  void Widen(const char* x, int64_t n, char* widened) const {
    Convert(ctx_.loops, dtype_, x, ComputeDType(dtype_), widened, n);
  }

  const char* RowOf(int64_t o) const { return x_ + o * shape_.extent * size_; }

  // Reduces rows, each of which is one leaf.
  void LeafRows(const char* x, int64_t rows, char* acc) const {
    const int64_t n = shape_.extent;
    if (!Is16Bit(dtype_)) return loops_.rows(x, rows, n, power_, acc);
    const int64_t at_once = kLeafElements / n;
    alignas(64) char widened[kLeafElements * kWideBytes];
    for (int64_t r = 0; r < rows; r += at_once) {
      const int64_t count = std::min(at_once, rows - r);
      Widen(x + r * n * size_, count * n, widened);
      loops_.rows(widened, count, n, power_, acc + r * acc_size_);
    }
  }

  void Row(const char* x, int64_t n, char* acc) const {
    if (n <= kRowChunkElements) return RowChunk(x, n, acc);
    Tree tree(loops_, acc_size_, 1);
    Team::InPieces(
        0, n, kGrainElements,
        [&](int64_t begin, int64_t end) {
          for (int64_t i = begin; i < end; i += kRowChunkElements) {
            RowChunk(x + i * size_, std::min(kRowChunkElements, end - i), tree.next());
            tree.Push();
          }
        },
        kRowChunkElements);
    tree.Finish(acc);
  }

  // Reduces at most kRowChunkElements elements.
  void RowChunk(const char* x, int64_t n, char* acc) const {
    if (n <= kLeafElements || one_leaf_) return RowLeaf(x, n, acc);
    alignas(Moments) char leaves[kLeavesPerChunk * kMaxAccBytes];
    const int64_t whole = n / kLeafElements, rest = n % kLeafElements;
    if (Is16Bit(dtype_)) {
      for (int64_t i = 0; i < whole; ++i) {
        RowLeaf(x + i * kLeafElements * size_, kLeafElements, leaves + i * acc_size_);
      }
    } else {
      loops_.rows(x, whole, kLeafElements, power_, leaves);
    }
    if (rest > 0) RowLeaf(x + (n - rest) * size_, rest, leaves + whole * acc_size_);
    loops_.join(leaves, whole + (rest > 0 ? 1 : 0));
    memcpy(acc, leaves, acc_size_);
  }

  void RowLeaf(const char* x, int64_t n, char* acc) const {
    if (!Is16Bit(dtype_)) return loops_.rows(x, 1, n, power_, acc);
    alignas(64) char widened[kLeafElements * kWideBytes];
    Widen(x, n, widened);
    loops_.rows(widened, 1, n, power_, acc);
  }

  // Chunks are subtrees of the same tree that Row() builds.
  void RowInParallel(const char* x, char* acc) const {
    const int64_t chunks = (shape_.extent + kRowChunkElements - 1) / kRowChunkElements;
    std::vector<char> partial(chunks * acc_size_);
    ctx_.team.For(chunks, 1, [&](int64_t begin, int64_t end) {
      for (int64_t c = begin; c < end; ++c) {
        RowChunk(x + c * kRowChunkElements * size_,
                 std::min(kRowChunkElements, shape_.extent - c * kRowChunkElements),
                 partial.data() + c * acc_size_);
      }
    });
    JoinPartials(partial, chunks, 1, acc);
  }

  void JoinPartials(const std::vector<char>& partial, int64_t chunks, int64_t width,
                    char* acc) const {
    Tree tree(loops_, acc_size_, width);
    for (int64_t c = 0; c < chunks; ++c) {
      const int64_t bytes = width * acc_size_;
      memcpy(tree.next(), partial.data() + c * bytes, bytes);
      tree.Push();
    }
    tree.Finish(acc);
  }

  // ---- inner > 1: each output is the reduction down a column

  // Returns how many rows are read as one row. Narrow rows are joined to about kReduceTileColumns
  // columns.
  int64_t Fold() const {
    return shape_.inner >= kNarrowColumns ? 1 : kReduceTileColumns / shape_.inner;
  }

  void Columns() {
    const int64_t tiles = (shape_.inner + kReduceTileColumns - 1) / kReduceTileColumns;
    const int64_t chunk_rows = kLeafRows * Fold() * kLeavesPerChunk;
    const bool few = shape_.outer * tiles < ctx_.team.threads();
    if (few && shape_.extent >= 2 * chunk_rows) {
      for (int64_t i = 0; i < shape_.outer * tiles; ++i) TileInParallel(i / tiles, i % tiles);
      return;
    }
    const int64_t tile_elements = shape_.extent * std::min(shape_.inner, kReduceTileColumns);
    const double grain = kGrainElements / static_cast<double>(tile_elements);
    ctx_.team.For(shape_.outer * tiles, grain, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) Tile(i / tiles, i % tiles);
    });
  }

  struct Area {
    const char* x;
    int64_t width;
    char* acc;
  };
  Area AreaOf(int64_t outer, int64_t tile) const {
    const int64_t column = tile * kReduceTileColumns;
    return {x_ + (outer * shape_.extent * shape_.inner + column) * size_,
            std::min(kReduceTileColumns, shape_.inner - column),
            acc_ + (outer * shape_.inner + column) * acc_size_};
  }

  void Tile(int64_t outer, int64_t tile) const {
    const Area area = AreaOf(outer, tile);
    TileRows(area.x, shape_.extent, area.width, area.acc);
  }

  void TileInParallel(int64_t outer, int64_t tile) const {
    const Area area = AreaOf(outer, tile);
    const int64_t chunk = kLeafRows * Fold() * kLeavesPerChunk;
    const int64_t chunks = (shape_.extent + chunk - 1) / chunk;
    std::vector<char> partial(chunks * area.width * acc_size_);
    ctx_.team.For(chunks, 1, [&](int64_t begin, int64_t end) {
      for (int64_t c = begin; c < end; ++c) {
        TileRows(area.x + c * chunk * shape_.inner * size_,
                 std::min(chunk, shape_.extent - c * chunk), area.width,
                 partial.data() + c * area.width * acc_size_);
      }
    });
    JoinPartials(partial, chunks, area.width, area.acc);
  }

  void TileRows(const char* x, int64_t rows, int64_t width, char* acc) const {
    const int64_t leaf = kLeafRows * Fold();
    Tree tree(loops_, acc_size_, width);
    const auto add_leaves = [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; r += leaf) {
        const int64_t count = std::min(leaf, end - r);
        const char* from = x + r * shape_.inner * size_;
        if (Fold() > 1) {
          FoldedLeaf(from, count, tree.next());
        } else {
          ColumnsLeaf(from, count, shape_.inner, width, tree.next());
        }
        tree.Push();
      }
    };
    Team::InPieces(0, rows, kGrainElements / static_cast<double>(width), add_leaves, leaf);
    tree.Finish(acc);
  }

  // Reduces (rows, width), with rows `stride` elements apart. rows <= kLeafRows, width <=
  // kReduceTileColumns.
  void ColumnsLeaf(const char* x, int64_t rows, int64_t stride, int64_t width, char* acc) const {
    if (!Is16Bit(dtype_)) return loops_.columns(x, rows, stride, width, power_, acc);
    alignas(64) char widened[kLeafRows * kReduceTileColumns * kWideBytes];
    for (int64_t r = 0; r < rows; ++r) {
      Widen(x + r * stride * size_, width, widened + r * width * kWideBytes);
    }
    loops_.columns(widened, rows, width, width, power_, acc);
  }

  // Reduces narrow rows, which are contiguous. Reads Fold() of them as one wide row. Then combines
  // the parts of the wide result.
  void FoldedLeaf(const char* x, int64_t rows, char* acc) const {
    const int64_t fold = Fold(), width = shape_.inner, wide = fold * width;
    alignas(Moments) char folded[kReduceTileColumns * kMaxAccBytes];
    int64_t done = rows / fold * fold;
    if (done > 0) {
      ColumnsLeaf(x, rows / fold, wide, wide, folded);
      memcpy(acc, folded, width * acc_size_);
      for (int64_t i = 1; i < fold; ++i) {
        loops_.combine(acc, folded + i * width * acc_size_, width);
      }
    }
    for (; done < rows; done += kLeafRows) {
      const int64_t count = std::min(kLeafRows, rows - done);
      ColumnsLeaf(x + done * width * size_, count, width, width, done == 0 ? acc : folded);
      if (done > 0) loops_.combine(acc, folded, width);
    }
  }

  const Context& ctx_;
  const ReductionLoops& loops_;
  const DType dtype_;
  const int64_t size_;
  const int64_t acc_size_;
  const bool one_leaf_;  // a chunk of a row is one leaf
  const char* const x_;
  const ReduceShape shape_;
  const double power_;
  char* const acc_;
};

}  // namespace

std::vector<AxisGroup> GroupAxes(const Shape& shape, absl::Span<const int64_t> axes) {
  std::vector<AxisGroup> groups;
  for (int axis = 0; axis < shape.rank(); ++axis) {
    if (shape.dim(axis) == 1) continue;
    const bool reduced = std::binary_search(axes.begin(), axes.end(), axis);
    if (!groups.empty() && groups.back().reduced == reduced) {
      groups.back().size *= shape.dim(axis);
    } else {
      groups.push_back({reduced, shape.dim(axis)});
    }
  }
  return groups;
}

ReduceShape TakeLastReduced(std::vector<AxisGroup>& groups) {
  ReduceShape shape = {1, 1, 1};
  size_t last = groups.size();
  while (!groups[last - 1].reduced) --last;
  for (size_t i = 0; i < groups.size(); ++i) {
    int64_t& part = i < last - 1 ? shape.outer : i == last - 1 ? shape.extent : shape.inner;
    part *= groups[i].size;
  }
  groups.erase(groups.begin() + static_cast<int64_t>(last) - 1);
  // The kept groups before and after the removed group are neighbours, so merges them.
  if (last - 1 > 0 && last - 1 < groups.size()) {
    groups[last - 2].size *= groups[last - 1].size;
    groups.erase(groups.begin() + static_cast<int64_t>(last) - 1);
  }
  return shape;
}

const ReductionLoops& ReductionLoopsOf(const Context& ctx, Reduction reduction, DType dtype) {
  return ctx.loops.reduction[static_cast<int>(reduction)][Index(ComputeDType(dtype))];
}

void ReduceStep(const Context& ctx, Reduction reduction, DType dtype, const void* x,
                const ReduceShape& shape, double power, void* acc) {
  Step(ctx, reduction, dtype, x, shape, power, acc).Run();
}

}  // namespace tensord::server::cpu
