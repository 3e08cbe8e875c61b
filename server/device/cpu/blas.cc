#include "tensord/server/device/cpu/blas.h"

#include <cblas.h>

#include <algorithm>

#include "tensord/server/device/cpu/tiles.h"

namespace tensord::server::cpu {
namespace {

// A tile of about 20 ms at 25 multiplications per nanosecond. Measured with OpenBLAS 0.3.21,
// float64 and 4096^3: such tiles take 3 % more time than one call, because the library packs both
// operands again for each tile. It divides k into parts of 384 (AVX-512) or 256 (AVX2) itself.
constexpr TileSize kGemmTile = {1024, 1280, 384};
// The number of matrix elements of a piece of about 20 ms of a product with a vector. Memory limits
// the speed of such a product.
constexpr int64_t kGemvElements = 8 << 20;

CBLAS_TRANSPOSE Flag(bool transpose) { return transpose ? CblasTrans : CblasNoTrans; }

blasint Dim(int64_t size) { return static_cast<blasint>(size); }

// If `beta` is 0, overwrites the result. If it is 1, adds to the result.
void Call(const BlasMatmul<float>& p, float beta) {
  cblas_sgemm(CblasRowMajor, Flag(p.transpose_a), Flag(p.transpose_b), Dim(p.m), Dim(p.n), Dim(p.k),
              1.0f, p.a, Dim(p.a_stride), p.b, Dim(p.b_stride), beta, p.c, Dim(p.c_stride));
}

void Call(const BlasMatmul<double>& p, double beta) {
  cblas_dgemm(CblasRowMajor, Flag(p.transpose_a), Flag(p.transpose_b), Dim(p.m), Dim(p.n), Dim(p.k),
              1.0, p.a, Dim(p.a_stride), p.b, Dim(p.b_stride), beta, p.c, Dim(p.c_stride));
}

void Call(const BlasMatvec<float>& p, float beta) {
  cblas_sgemv(CblasRowMajor, Flag(p.transpose), Dim(p.rows), Dim(p.cols), 1.0f, p.matrix,
              Dim(p.row_stride), p.x, 1, beta, p.y, 1);
}

void Call(const BlasMatvec<double>& p, double beta) {
  cblas_dgemv(CblasRowMajor, Flag(p.transpose), Dim(p.rows), Dim(p.cols), 1.0, p.matrix,
              Dim(p.row_stride), p.x, 1, beta, p.y, 1);
}

template <typename T>
void GemmInTiles(const BlasMatmul<T>& whole) {
  ForEachTile({whole.m, whole.n, whole.k}, kGemmTile, [&](const Tile& tile) {
    BlasMatmul<T> part = whole;
    part.m = tile.size.m;
    part.n = tile.size.n;
    part.k = tile.size.k;
    part.a += whole.transpose_a ? tile.depth * whole.a_stride + tile.row
                                : tile.row * whole.a_stride + tile.depth;
    part.b += whole.transpose_b ? tile.col * whole.b_stride + tile.depth
                                : tile.depth * whole.b_stride + tile.col;
    part.c += tile.row * whole.c_stride + tile.col;
    Call(part, whole.accumulate || tile.depth > 0 ? T{1} : T{0});
  });
}

// The tiles are runs of stored rows, or parts of rows that are longer than a tile.
template <typename T>
void GemvInTiles(const BlasMatvec<T>& whole) {
  const int64_t cols = std::clamp<int64_t>(whole.cols, 1, kGemvElements);
  const TileSize tile_size = {kGemvElements / cols, cols, 1};
  ForEachTile({whole.rows, whole.cols, 1}, tile_size, [&](const Tile& tile) {
    const int64_t output = whole.transpose ? tile.col : tile.row;
    const int64_t depth = whole.transpose ? tile.row : tile.col;
    BlasMatvec<T> part = whole;
    part.rows = tile.size.m;
    part.cols = tile.size.n;
    part.matrix += tile.row * whole.row_stride + tile.col;
    part.x += depth;
    part.y += output;
    Call(part, depth > 0 ? T{1} : T{0});
  });
}

}  // namespace

void UseBlasOnCallersThread() {
  static const bool once = [] {
    openblas_set_num_threads(1);
    return true;
  }();
  (void)once;
}

void Gemm(const BlasMatmul<float>& p) { GemmInTiles(p); }
void Gemm(const BlasMatmul<double>& p) { GemmInTiles(p); }
void Gemv(const BlasMatvec<float>& p) { GemvInTiles(p); }
void Gemv(const BlasMatvec<double>& p) { GemvInTiles(p); }

}  // namespace tensord::server::cpu
