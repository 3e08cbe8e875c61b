// Matrix products by OpenBLAS on the calling thread. For parallel products, each of the team's
// threads computes a part. Large products are computed in tiles of about 20 ms. If the op must stop
// (stop_token.h), the functions return early.
#pragma once

#include <cstdint>

namespace tensord::server::cpu {

// The maximum of each dimension. The library uses 32-bit integers.
inline constexpr int64_t kMaxBlasDim = INT32_MAX;

// Makes the library use only the calling thread. Call it before the first product. Later calls do
// nothing. Thread-safe.
void UseBlasOnCallersThread();

// (M,K)·(K,N) -> (M,N), row-major. A transposed operand is stored as (K,M) or (N,K). a_stride,
// b_stride and c_stride are the distances between stored rows, in elements.
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
  bool accumulate = false;  // adds the product to c
};
void Gemm(const BlasMatmul<float>& matmul);
void Gemm(const BlasMatmul<double>& matmul);

// y = matrix·x, or matrixᵀ·x if `transpose`. The matrix is stored as (rows, cols), with rows
// row_stride elements apart.
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
