#include "tensord/server/device/cpu/gemm.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "tensord/common/util/mutex.h"
#include "tensord/common/util/status_macros.h"
#include "tensord/server/device/cpu/blas.h"
#include "tensord/server/device/cpu/strided_copy.h"
#include "tensord/server/device/cpu/tiles.h"

namespace tensord::server::cpu {
namespace {

// A grain (team.h) in multiplications.
constexpr double kGrainProducts = 64 * 1024;
// A call of OpenBLAS takes about as long as this number of multiplications.
constexpr double kItemProducts = 256;
// Up to this number of multiplications, OpenBLAS on one thread finishes before oneDNN has started.
constexpr double kSmallProducts = 48 * 48 * 48;
// The limit below which OpenBLAS is faster if each of many products runs on one thread and b isn't
// transposed.
constexpr double kSmallProductsInARow = 112 * 112 * 112;
// A grain in matrix elements, for a product with a vector.
constexpr double kGrainMatvecElements = 32 * 1024;
// Up to this k, oneDNN computes large products. Its tiles have the whole k, so for a larger k they
// would have too few rows and columns to be fast.
constexpr int64_t kMaxOneDnnDepth = 64 * 1024;
constexpr TileSize kIntegerTile = {256, 128, 512};

template <typename T>
BlasMatmul<T> BlasItem(const BatchedGemm& gemm, int64_t item) {
  BlasMatmul<T> p;
  p.m = gemm.m;
  p.n = gemm.n;
  p.k = gemm.k;
  p.a = static_cast<const T*>(gemm.a) + gemm.a_offset(item);
  p.b = static_cast<const T*>(gemm.b) + gemm.b_offset(item);
  p.c = static_cast<T*>(gemm.c) + item * gemm.m * gemm.n;
  p.transpose_a = gemm.transpose_a;
  p.transpose_b = gemm.transpose_b;
  p.a_stride = gemm.transpose_a ? gemm.m : gemm.k;
  p.b_stride = gemm.transpose_b ? gemm.k : gemm.n;
  p.c_stride = gemm.n;
  return p;
}

bool IsMatvec(const BatchedGemm& gemm) { return gemm.m == 1 || gemm.n == 1; }

// Returns the product with a row (M = 1) or a column (N = 1) as a product of a matrix and a vector.
template <typename T>
BlasMatvec<T> MatvecItem(const BatchedGemm& gemm, int64_t item) {
  const BlasMatmul<T> p = BlasItem<T>(gemm, item);
  const bool stored_transposed = gemm.n == 1 ? gemm.transpose_a : !gemm.transpose_b;
  const int64_t outputs = gemm.n == 1 ? gemm.m : gemm.n;
  BlasMatvec<T> v;
  v.matrix = gemm.n == 1 ? p.a : p.b;
  v.x = gemm.n == 1 ? p.b : p.a;
  v.y = p.c;
  v.rows = stored_transposed ? gemm.k : outputs;
  v.cols = stored_transposed ? outputs : gemm.k;
  v.row_stride = v.cols;
  v.transpose = stored_transposed;
  return v;
}

// Divides the outputs among the threads, so that one thread computes the whole sum of an output.
template <typename T>
void MatvecInParallel(const Context& ctx, const BlasMatvec<T>& whole) {
  const int64_t outputs = whole.transpose ? whole.cols : whole.rows;
  const int64_t depth = whole.transpose ? whole.rows : whole.cols;
  ctx.team.Divide(
      outputs, kGrainMatvecElements / static_cast<double>(depth),
      [&](int64_t begin, int64_t end) {
        BlasMatvec<T> part = whole;
        (whole.transpose ? part.cols : part.rows) = end - begin;
        part.matrix += whole.transpose ? begin : begin * whole.row_stride;
        part.y += begin;
        Gemv(part);
      },
      16);
}

// Divides the rows of c among the threads, or the columns if there are more of them.
template <typename T>
void GemmInParallel(const Context& ctx, const BlasMatmul<T>& whole) {
  const bool by_rows = whole.m >= whole.n;
  const int64_t longer = by_rows ? whole.m : whole.n;
  const int64_t each = std::min(whole.m, whole.n) * whole.k;
  ctx.team.Divide(
      longer, std::max(8.0, kGrainProducts / static_cast<double>(each)),
      [&](int64_t begin, int64_t end) {
        BlasMatmul<T> part = whole;
        if (by_rows) {
          part.m = end - begin;
          part.a += whole.transpose_a ? begin : begin * whole.a_stride;
          part.c += begin * whole.c_stride;
        } else {
          part.n = end - begin;
          part.b += whole.transpose_b ? begin * whole.b_stride : begin;
          part.c += begin;
        }
        Gemm(part);
      },
      8);
}

template <typename T>
void BlasItems(const Context& ctx, const BatchedGemm& gemm) {
  if (gemm.items >= ctx.team.threads() && gemm.items > 1) {
    const double grain = kGrainProducts / (gemm.products() + kItemProducts);
    ctx.team.For(gemm.items, grain, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        if (IsMatvec(gemm)) {
          Gemv(MatvecItem<T>(gemm, i));
        } else {
          Gemm(BlasItem<T>(gemm, i));
        }
      }
    });
    return;
  }
  for (int64_t i = 0; i < gemm.items; ++i) {
    if (IsMatvec(gemm)) {
      MatvecInParallel(ctx, MatvecItem<T>(gemm, i));
    } else {
      GemmInParallel(ctx, BlasItem<T>(gemm, i));
    }
  }
}

template <typename T>
absl::Status RunBlas(const Context& ctx, const KernelCall& call, const BatchedGemm& gemm) {
  if (std::max({gemm.m, gemm.n, gemm.k}) > kMaxBlasDim) {
    return absl::UnimplementedError(
        absl::StrCat(call.schema->name, ": (", gemm.m, ",", gemm.k, ")·(", gemm.k, ",", gemm.n,
                     ") in ", DTypeName(gemm.dtype), " has a dimension over ", kMaxBlasDim,
                     ", which the CPU backend can't multiply: split it"));
  }
  BlasItems<T>(ctx, gemm);
  return absl::OkStatus();
}

// Computes items [begin, end).
absl::Status RunItems(const Context& ctx, const KernelCall& call, const BatchedGemm& gemm,
                      OneDnnProduct& product, int64_t begin, int64_t end) {
  TENSORD_ASSIGN_OR_RETURN(const Scratch scratch, MakeScratch(call, OneDnn::ScratchBytes(product)));
  const int64_t size = SizeOf(gemm.dtype);
  for (int64_t i = begin; i < end; ++i) {
    TENSORD_RETURN_IF_ERROR(ctx.onednn.Run(
        product, Advance(gemm.a, gemm.a_offset(i) * size), Advance(gemm.b, gemm.b_offset(i) * size),
        nullptr, Advance(gemm.c, i * gemm.m * gemm.n * size), scratch.data()));
  }
  return absl::OkStatus();
}

// Computes items [begin, end) on the calling thread, while other threads compute other items.
absl::Status RunItemsAlone(const Context& ctx, const KernelCall& call, const BatchedGemm& gemm,
                           const OneDnnProduct& product, int64_t begin, int64_t end) {
  TENSORD_ASSIGN_OR_RETURN(const std::shared_ptr<OneDnnProduct> own, ctx.onednn.Clone(product));
  return RunItems(ctx, call, gemm, *own, begin, end);
}

absl::Status OneDnnItems(const Context& ctx, const KernelCall& call, const BatchedGemm& gemm) {
  TENSORD_ASSIGN_OR_RETURN(const std::shared_ptr<OneDnnProduct> product,
                           ctx.onednn.Find(MakeOneDnnMatmul(ctx, gemm, false, std::nullopt)));
  return RunItems(ctx, call, gemm, *product, 0, gemm.items);
}

// Divides the items among the threads. One thread computes an item.
absl::Status OneDnnItemsByThreads(const Context& ctx, const KernelCall& call,
                                  const BatchedGemm& gemm) {
  OneDnnMatmul matmul = MakeOneDnnMatmul(ctx, gemm, false, std::nullopt);
  matmul.threads = 1;
  TENSORD_ASSIGN_OR_RETURN(const std::shared_ptr<OneDnnProduct> product, ctx.onednn.Find(matmul));
  Mutex mu;
  absl::Status first_error;  // guarded by mu
  const double grain = kGrainProducts / gemm.products();
  ctx.team.Divide(gemm.items, grain, [&](int64_t begin, int64_t end) {
    const absl::Status status = RunItemsAlone(ctx, call, gemm, *product, begin, end);
    MutexLock lock(&mu);
    first_error.Update(status);
  });
  return first_error;
}

bool OneThreadEach(const Context& ctx, const BatchedGemm& gemm) {
  return gemm.items >= 4 * ctx.team.threads() && gemm.items > 1;
}

absl::Status RunFloat32(const Context& ctx, const KernelCall& call, const BatchedGemm& gemm) {
  if (!PrefersOneDnn(gemm)) return RunBlas<float>(ctx, call, gemm);
  if (!OneThreadEach(ctx, gemm)) return OneDnnItems(ctx, call, gemm);
  const bool by_blas = gemm.products() < kSmallProductsInARow && !gemm.transpose_b;
  return by_blas ? RunBlas<float>(ctx, call, gemm) : OneDnnItemsByThreads(ctx, call, gemm);
}

void RunTiles(IntegerMatmulLoop loop, const IntegerMatmul& whole, int64_t size) {
  ForEachTile({whole.m, whole.n, whole.k}, kIntegerTile, [&](const Tile& tile) {
    IntegerMatmul part = whole;
    part.m = tile.size.m;
    part.n = tile.size.n;
    part.k = tile.size.k;
    part.accumulate = tile.depth > 0;
    part.a = Advance(whole.a, (tile.row * whole.a_row + tile.depth * whole.a_col) * size);
    part.b = Advance(whole.b, (tile.depth * whole.b_row + tile.col * whole.b_col) * size);
    part.c = Advance(whole.c, (tile.row * whole.c_stride + tile.col) * size);
    loop(part);
  });
}

absl::Status RunInteger(const Context& ctx, const KernelCall& call, const BatchedGemm& gemm) {
  const IntegerMatmulLoop loop = ctx.loops.integer_matmul[Index(gemm.dtype)];
  if (loop == nullptr) return NoKernel(call);
  const int64_t size = SizeOf(gemm.dtype);
  IntegerMatmul whole = {};
  whole.m = gemm.m;
  whole.n = gemm.n;
  whole.k = gemm.k;
  whole.a_row = gemm.transpose_a ? 1 : gemm.k;
  whole.a_col = gemm.transpose_a ? gemm.m : 1;
  whole.b_row = gemm.transpose_b ? 1 : gemm.n;
  whole.b_col = gemm.transpose_b ? gemm.k : 1;
  whole.c_stride = gemm.n;
  // Divides the rows of all items among the threads. If there is one item with more columns than
  // rows, divides the columns.
  const bool by_columns = gemm.items == 1 && gemm.n > gemm.m;
  const int64_t units = by_columns ? gemm.n : gemm.items * gemm.m;
  const double each = static_cast<double>(gemm.k * (by_columns ? gemm.m : gemm.n));
  ctx.team.Divide(units, kGrainProducts / each, [&](int64_t begin, int64_t end) {
    while (begin < end && !MustStop()) {
      const int64_t item = by_columns ? 0 : begin / gemm.m;
      const int64_t first = begin - item * gemm.m;
      const int64_t count = by_columns ? end - begin : std::min(end - begin, gemm.m - first);
      const int64_t row = by_columns ? 0 : first, col = by_columns ? first : 0;
      IntegerMatmul part = whole;
      (by_columns ? part.n : part.m) = count;
      part.a = Advance(gemm.a, (gemm.a_offset(item) + row * whole.a_row) * size);
      part.b = Advance(gemm.b, (gemm.b_offset(item) + col * whole.b_col) * size);
      part.c = Advance(gemm.c, (item * gemm.m * gemm.n + row * gemm.n + col) * size);
      RunTiles(loop, part, size);
      begin += count;
    }
  });
  return absl::OkStatus();
}

absl::Status RunWidened(const Context& ctx, const KernelCall& call, const BatchedGemm& gemm) {
  return RunWideBlocks(ctx, call, gemm, [&](const BatchedGemm& block, int64_t /*column*/) {
    return block.dtype == DType::kFloat32 ? RunFloat32(ctx, call, block)
                                          : RunInteger(ctx, call, block);
  });
}

absl::Status RunBFloat16(const Context& ctx, const KernelCall& call, const BatchedGemm& gemm) {
  if (!PrefersOneDnn(gemm)) return RunWidened(ctx, call, gemm);
  const absl::Status status = OneThreadEach(ctx, gemm) ? OneDnnItemsByThreads(ctx, call, gemm)
                                                       : OneDnnItems(ctx, call, gemm);
  return absl::IsUnimplemented(status) ? RunWidened(ctx, call, gemm) : status;
}

}  // namespace

absl::Status RunProduct(const Context& ctx, const KernelCall& call, OneDnnProduct& product,
                        const void* a, const void* b, const void* bias, void* c) {
  TENSORD_ASSIGN_OR_RETURN(const Scratch scratch, MakeScratch(call, OneDnn::ScratchBytes(product)));
  return ctx.onednn.Run(product, a, b, bias, c, scratch.data());
}

OneDnnMatmul MakeOneDnnMatmul(const Context& ctx, const BatchedGemm& gemm, bool has_bias,
                              std::optional<UnaryFunction> activation) {
  OneDnnMatmul matmul;
  matmul.dtype = gemm.dtype;
  matmul.m = gemm.m;
  matmul.n = gemm.n;
  matmul.k = gemm.k;
  matmul.transpose_a = gemm.transpose_a;
  matmul.transpose_b = gemm.transpose_b;
  matmul.has_bias = has_bias;
  matmul.activation = activation;
  matmul.threads = gemm.products() <= kMaxInlineMultiplications ? 1 : ctx.team.threads();
  return matmul;
}

namespace {

// Returns whether rows of c, or of the transposed a, begin multiples of 4 KiB apart, and the
// product is so narrow that this matters: oneDNN's code for AVX2 then takes up to twice the time of
// OpenBLAS's (measured with oneDNN 2.6 on Zen 3). Products of fewer rows are faster with oneDNN and
// a packed b.
bool HasSlowRows(const BatchedGemm& gemm) {
  static const bool has_avx512 = LoopsOf(IsaLevel::kV4) != nullptr;
  constexpr int64_t kPage = 4096 / sizeof(float);
  if (has_avx512 || gemm.dtype != DType::kFloat32) return false;
  return (gemm.n % kPage == 0 && gemm.m >= 32 && gemm.m <= kPage / 2) ||
         (gemm.transpose_a && gemm.m % kPage == 0 && gemm.n <= kPage);
}

}  // namespace

bool PrefersOneDnn(const BatchedGemm& gemm) {
  if (HasSlowRows(gemm)) return false;
  // OpenBLAS is faster with a float32 vector, and has no bfloat16.
  const bool vector = gemm.dtype == DType::kBFloat16 ? gemm.n == 1 : IsMatvec(gemm);
  return !vector && gemm.products() > kSmallProducts && gemm.k <= kMaxOneDnnDepth;
}

absl::Status RunGemm(const Context& ctx, const KernelCall& call, const BatchedGemm& gemm) {
  const int64_t c_elements = gemm.items * gemm.m * gemm.n;
  if (c_elements == 0) return absl::OkStatus();
  if (gemm.k == 0) {
    const int64_t zero = 0;
    Fill(ctx, &zero, SizeOf(gemm.dtype), gemm.c, c_elements);
    return absl::OkStatus();
  }
  switch (gemm.dtype) {
    case DType::kFloat32:
      return RunFloat32(ctx, call, gemm);
    case DType::kFloat64:
      return RunBlas<double>(ctx, call, gemm);
    case DType::kFloat16:
    case DType::kInt16:
    case DType::kUInt16:
      return RunWidened(ctx, call, gemm);
    case DType::kBFloat16:
      return RunBFloat16(ctx, call, gemm);
    default:
      return RunInteger(ctx, call, gemm);
  }
}

void RunEpilogue(const Context& ctx, const BatchedGemm& gemm, const void* bias,
                 std::optional<UnaryFunction> activation) {
  if (bias == nullptr && !activation.has_value()) return;
  const int dtype = Index(gemm.dtype);
  const int64_t size = SizeOf(gemm.dtype);
  const BinaryLoop add = ctx.loops.binary[static_cast<int>(BinaryFunction::kAdd)][dtype];
  const UnaryLoop activate =
      activation.has_value() ? ctx.loops.unary[static_cast<int>(*activation)][dtype] : nullptr;
  ctx.team.For(gemm.m * gemm.n, kGrainElements / 2, [&](int64_t begin, int64_t end) {
    for (int64_t at = begin; at < end;) {
      const int64_t column = at % gemm.n, count = std::min(gemm.n - column, end - at);
      char* y = Advance(gemm.c, at * size);
      if (bias != nullptr) add(y, 1, Advance(bias, column * size), 1, y, count);
      if (activate != nullptr) activate(y, y, count);
      at += count;
    }
  });
}

}  // namespace tensord::server::cpu
