#include "tensord/server/device/cpu/blas.h"

#include <cblas.h>

namespace tensord::server::cpu {
namespace {

CBLAS_TRANSPOSE Flag(bool transpose) { return transpose ? CblasTrans : CblasNoTrans; }

blasint Dim(int64_t size) { return static_cast<blasint>(size); }

}  // namespace

void UseBlasOnCallersThread() {
  static const bool once = [] {
    openblas_set_num_threads(1);
    return true;
  }();
  (void)once;
}

void Gemm(const BlasMatmul<float>& p) {
  cblas_sgemm(CblasRowMajor, Flag(p.transpose_a), Flag(p.transpose_b), Dim(p.m), Dim(p.n), Dim(p.k),
              1.0f, p.a, Dim(p.a_stride), p.b, Dim(p.b_stride), 0.0f, p.c, Dim(p.c_stride));
}

void Gemm(const BlasMatmul<double>& p) {
  cblas_dgemm(CblasRowMajor, Flag(p.transpose_a), Flag(p.transpose_b), Dim(p.m), Dim(p.n), Dim(p.k),
              1.0, p.a, Dim(p.a_stride), p.b, Dim(p.b_stride), 0.0, p.c, Dim(p.c_stride));
}

void Gemv(const BlasMatvec<float>& p) {
  cblas_sgemv(CblasRowMajor, Flag(p.transpose), Dim(p.rows), Dim(p.cols), 1.0f, p.matrix,
              Dim(p.row_stride), p.x, 1, 0.0f, p.y, 1);
}

void Gemv(const BlasMatvec<double>& p) {
  cblas_dgemv(CblasRowMajor, Flag(p.transpose), Dim(p.rows), Dim(p.cols), 1.0, p.matrix,
              Dim(p.row_stride), p.x, 1, 0.0, p.y, 1);
}

}  // namespace tensord::server::cpu
