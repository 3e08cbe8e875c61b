// Products of 16-bit operands, block by block in a wider dtype.
#include <algorithm>

#include "tensord/common/util/status_macros.h"
#include "tensord/server/device/cpu/gemm.h"
#include "tensord/server/device/cpu/tiles.h"
#include "tensord/server/device/stop_token.h"

namespace tensord::server::cpu {
namespace {

// A product whose operands and result take at most this memory in the wider dtype is one block.
// Blocks of larger products take about as much. A block has the whole k, so if k is long, one row
// and one column of kMinBlockSide take more.
constexpr int64_t kBlockBytes = 128 << 20;
// The minimum length of a block, so that the library is as fast as for the whole product.
constexpr int64_t kMinBlockSide = 256;

// Converts rows of `cols` elements to another dtype. The rows begin `from_stride` and `to_stride`
// elements after one another.
struct RowConversion {
  DType from_dtype, to_dtype;
  const void* from;
  int64_t from_stride;
  void* to;
  int64_t to_stride;
  int64_t rows, cols;
};

void ConvertRows(const Context& ctx, const RowConversion& job) {
  if (job.rows == 1 || (job.from_stride == job.cols && job.to_stride == job.cols)) {
    return ConvertInParallel(ctx, job.from_dtype, job.from, job.to_dtype, job.to,
                             job.rows * job.cols);
  }
  const double grain = kGrainElements / static_cast<double>(job.cols);
  ctx.team.For(job.rows, grain, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      Convert(ctx.loops, job.from_dtype,
              Advance(job.from, row * job.from_stride * SizeOf(job.from_dtype)), job.to_dtype,
              Advance(job.to, row * job.to_stride * SizeOf(job.to_dtype)), job.cols);
    }
  });
}

class WideBlocks {
 public:
  WideBlocks(const Context& ctx, const KernelCall& call, const BatchedGemm& gemm, WideProduct run)
      : ctx_(ctx), call_(call), gemm_(gemm), run_(run), wide_(ComputeDType(gemm.dtype)) {}

  absl::Status Run() {
    const int64_t c_elements = gemm_.items * gemm_.m * gemm_.n;
    if (gemm_.a_elements + gemm_.b_elements + c_elements <= kBlockBytes / kWideBytes) {
      return RunWhole();
    }
    const int64_t item = gemm_.m * gemm_.k + gemm_.k * gemm_.n + gemm_.m * gemm_.n;
    if (gemm_.items > 1 && item <= kBlockBytes / kWideBytes) return RunItems(item);
    return RunTiles();
  }

 private:
  static constexpr int64_t kWideBytes = 4, kBytes = 2;

  absl::Status RunWhole() {
    TENSORD_RETURN_IF_ERROR(
        Allocate(gemm_.a_elements, gemm_.b_elements, gemm_.items * gemm_.m * gemm_.n));
    ConvertInParallel(ctx_, gemm_.dtype, gemm_.a, wide_, a_.data(), gemm_.a_elements);
    ConvertInParallel(ctx_, gemm_.dtype, gemm_.b, wide_, b_.data(), gemm_.b_elements);
    TENSORD_RETURN_IF_ERROR(run_(Widened(gemm_), 0));
    ConvertInParallel(ctx_, wide_, c_.data(), gemm_.dtype, gemm_.c,
                      gemm_.items * gemm_.m * gemm_.n);
    return absl::OkStatus();
  }

  // A block has some items: if they are small, as many as the product needs to be divided among the
  // threads.
  absl::Status RunItems(int64_t item_elements) {
    const int64_t wanted = std::min<int64_t>(gemm_.items, 8 * ctx_.team.threads());
    const bool fits = wanted * item_elements <= 2 * kBlockBytes / kWideBytes;
    const int64_t least = fits ? wanted : 1;
    const int64_t most = std::max(least, kBlockBytes / kWideBytes / item_elements);
    const int64_t blocks = (gemm_.items + most - 1) / most;
    const int64_t block = (gemm_.items + blocks - 1) / blocks;
    const int64_t c_item = gemm_.m * gemm_.n;
    TENSORD_RETURN_IF_ERROR(
        Allocate(block * gemm_.m * gemm_.k, block * gemm_.k * gemm_.n, block * c_item));
    for (int64_t first = 0; first < gemm_.items; first += block) {
      TENSORD_RETURN_IF_ERROR(CheckStop());
      BatchedGemm part = Widened(gemm_);
      part.items = std::min(block, gemm_.items - first);
      part.a_axes = WidenItems(gemm_.a, gemm_.m * gemm_.k, first, part.items, a_.data(),
                               [this](int64_t item) { return gemm_.a_offset(item); });
      part.b_axes = WidenItems(gemm_.b, gemm_.k * gemm_.n, first, part.items, b_.data(),
                               [this](int64_t item) { return gemm_.b_offset(item); });
      TENSORD_RETURN_IF_ERROR(run_(part, 0));
      ConvertInParallel(ctx_, wide_, c_.data(), gemm_.dtype,
                        Advance(gemm_.c, first * c_item * kBytes), part.items * c_item);
    }
    return absl::OkStatus();
  }

  // Converts an operand of `count` items from item `first` on, which have `size` elements each. If
  // all are the same item, converts it once. Returns the axes of the converted items.
  template <typename OffsetOf>
  std::optional<StridedAxes> WidenItems(const void* operand, int64_t size, int64_t first,
                                        int64_t count, void* to, OffsetOf offset_of) {
    const int64_t first_offset = offset_of(first);
    int64_t same = 1;
    while (same < count && offset_of(first + same) == first_offset) ++same;
    if (same < count || count == 1) {
      const double grain = kGrainElements / static_cast<double>(std::max<int64_t>(1, size));
      ctx_.team.For(count, grain, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
          Convert(ctx_.loops, gemm_.dtype, Advance(operand, offset_of(first + i) * kBytes), wide_,
                  Advance(to, i * size * kWideBytes), size);
        }
      });
      return std::nullopt;
    }
    ConvertInParallel(ctx_, gemm_.dtype, Advance(operand, first_offset * kBytes), wide_, to, size);
    return StridedAxes{{count}, {0}};
  }

  // A block has some rows and columns of one item, and the whole k.
  absl::Status RunTiles() {
    const int64_t elements = kBlockBytes / kWideBytes / 2;
    const auto side = [](int64_t whole, int64_t wanted) {
      return EvenTileLength(whole, std::clamp(wanted, std::min(kMinBlockSide, whole), whole));
    };
    const int64_t cols = side(gemm_.n, elements / std::max<int64_t>(1, gemm_.k));
    const int64_t rows = side(gemm_.m, elements / (gemm_.k + cols));
    TENSORD_RETURN_IF_ERROR(Allocate(rows * gemm_.k, gemm_.k * cols, rows * cols));
    for (int64_t item = 0; item < gemm_.items; ++item) {
      for (int64_t col = 0; col < gemm_.n; col += cols) {
        const int64_t n = std::min(cols, gemm_.n - col);
        WidenPart(Advance(gemm_.b, gemm_.b_offset(item) * kBytes), gemm_.transpose_b, gemm_.n, col,
                  n, b_.data());
        for (int64_t row = 0; row < gemm_.m; row += rows) {
          TENSORD_RETURN_IF_ERROR(CheckStop());
          TENSORD_RETURN_IF_ERROR(RunTile(item, row, std::min(rows, gemm_.m - row), col, n));
        }
      }
    }
    return absl::OkStatus();
  }

  absl::Status RunTile(int64_t item, int64_t row, int64_t m, int64_t col, int64_t n) {
    WidenPart(Advance(gemm_.a, gemm_.a_offset(item) * kBytes), !gemm_.transpose_a, gemm_.m, row, m,
              a_.data());
    BatchedGemm part = Widened(gemm_);
    part.items = 1;
    part.m = m;
    part.n = n;
    part.a_axes.reset();
    part.b_axes.reset();
    part.a_elements = m * gemm_.k;
    part.b_elements = gemm_.k * n;
    TENSORD_RETURN_IF_ERROR(run_(part, col));
    void* const c = Advance(gemm_.c, ((item * gemm_.m + row) * gemm_.n + col) * kBytes);
    ConvertRows(ctx_, {wide_, gemm_.dtype, c_.data(), n, c, gemm_.n, m, n});
    return absl::OkStatus();
  }

  // Converts [begin, begin + n) of the `whole` rows of a, or columns of b. `k_last` says whether
  // the elements of one of them are contiguous.
  void WidenPart(const void* operand, bool k_last, int64_t whole, int64_t begin, int64_t n,
                 void* to) const {
    const int64_t k = gemm_.k;
    ConvertRows(ctx_, k_last ? RowConversion{gemm_.dtype, wide_,
                                             Advance(operand, begin * k * kBytes), k, to, k, n, k}
                             : RowConversion{gemm_.dtype, wide_, Advance(operand, begin * kBytes),
                                             whole, to, n, k, n});
  }

  absl::Status Allocate(int64_t a_elements, int64_t b_elements, int64_t c_elements) {
    TENSORD_ASSIGN_OR_RETURN(a_, MakeScratch(call_, a_elements * kWideBytes));
    TENSORD_ASSIGN_OR_RETURN(b_, MakeScratch(call_, b_elements * kWideBytes));
    TENSORD_ASSIGN_OR_RETURN(c_, MakeScratch(call_, c_elements * kWideBytes));
    return absl::OkStatus();
  }

  // Returns `gemm` with the operands in the wider dtype.
  BatchedGemm Widened(const BatchedGemm& gemm) const {
    BatchedGemm widened = gemm;
    widened.dtype = wide_;
    widened.a = a_.data();
    widened.b = b_.data();
    widened.c = c_.data();
    return widened;
  }

  const Context& ctx_;
  const KernelCall& call_;
  const BatchedGemm& gemm_;
  const WideProduct run_;
  const DType wide_;
  Scratch a_, b_, c_;
};

}  // namespace

absl::Status RunWideBlocks(const Context& ctx, const KernelCall& call, const BatchedGemm& gemm,
                           WideProduct run) {
  return WideBlocks(ctx, call, gemm, run).Run();
}

}  // namespace tensord::server::cpu
