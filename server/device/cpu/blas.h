// Matrix products by OpenBLAS on the calling thread alone; the team's threads each call it on a
// part.
#pragma once

#include <cstdint>

namespace tensord::server::cpu {

// The library counts in 32 bits: no dimension may be larger.
inline constexpr int64_t kMaxBlasDim = INT32_MAX;

// Keeps the library from threads of its own. Once per process, before its first use.
void UseBlasOnCallersThread();

// (M,K)·(K,N) -> (M,N), row-major. A transposed operand is stored as (K,M) or (N,K); a_stride,
// b_stride and c_stride are the distances between stored rows.
template <typename T>
struct BlasMatmul {
  int64_t m, n, k;
  const T* a;
  int64_t a_stride;
  bool transpose_a;
  const T* b;
  int64_t b_stride;
  bool transpose_b;
  T* c;
  int64_t c_stride;
};
void Gemm(const BlasMatmul<float>& matmul);
void Gemm(const BlasMatmul<double>& matmul);

// y = matrix·x, or matrixᵀ·x; the matrix is stored as (rows, cols), rows row_stride apart.
template <typename T>
struct BlasMatvec {
  int64_t rows, cols;
  const T* matrix;
  int64_t row_stride;
  bool transpose;
  const T* x;
  T* y;
};
void Gemv(const BlasMatvec<float>& matvec);
void Gemv(const BlasMatvec<double>& matvec);

}  // namespace tensord::server::cpu
