// The functions of cuBLASLt that blas.cc calls. The library is loaded at the first call. If it
// can't be loaded, every call fails with CUBLAS_STATUS_NOT_INITIALIZED, and
// cublasLtGetStatusString() returns the reason.
#include <cublasLt.h>

#include "absl/strings/str_cat.h"
#include "tensord/server/device/cuda/lazy_library.h"

namespace tensord::server::cuda {
namespace {

const LazyLibrary& CublasLt() {
  static const auto* const library =
      new LazyLibrary(absl::StrCat("libcublasLt.so.", CUBLAS_VER_MAJOR));
  return *library;
}

}  // namespace

#define TENSORD_CUBLASLT_FUNCTION(function, parameters, arguments)                 \
  TENSORD_LAZY_FUNCTION(CublasLt, cublasStatus_t, function, parameters, arguments, \
                        CUBLAS_STATUS_NOT_INITIALIZED)

TENSORD_LAZY_FUNCTION(CublasLt, size_t, cublasLtGetVersion, (), (), 0)
TENSORD_LAZY_FUNCTION(CublasLt, const char*, cublasLtGetStatusName, (cublasStatus_t status),
                      (status), "CUBLAS_STATUS_NOT_INITIALIZED")
TENSORD_LAZY_FUNCTION(CublasLt, const char*, cublasLtGetStatusString, (cublasStatus_t status),
                      (status), CublasLt().error().c_str())
TENSORD_CUBLASLT_FUNCTION(cublasLtCreate, (cublasLtHandle_t * handle), (handle))
TENSORD_CUBLASLT_FUNCTION(cublasLtDestroy, (cublasLtHandle_t handle), (handle))
TENSORD_CUBLASLT_FUNCTION(cublasLtMatrixLayoutInit_internal,
                          (cublasLtMatrixLayout_t layout, size_t size, cudaDataType type,
                           uint64_t rows, uint64_t columns, int64_t leading_dimension),
                          (layout, size, type, rows, columns, leading_dimension))
TENSORD_CUBLASLT_FUNCTION(cublasLtMatrixLayoutSetAttribute,
                          (cublasLtMatrixLayout_t layout, cublasLtMatrixLayoutAttribute_t attribute,
                           const void* value, size_t size),
                          (layout, attribute, value, size))
TENSORD_CUBLASLT_FUNCTION(cublasLtMatmulDescInit_internal,
                          (cublasLtMatmulDesc_t matmul, size_t size, cublasComputeType_t compute,
                           cudaDataType_t scale),
                          (matmul, size, compute, scale))
TENSORD_CUBLASLT_FUNCTION(cublasLtMatmulDescSetAttribute,
                          (cublasLtMatmulDesc_t matmul, cublasLtMatmulDescAttributes_t attribute,
                           const void* value, size_t size),
                          (matmul, attribute, value, size))
TENSORD_CUBLASLT_FUNCTION(cublasLtMatmulPreferenceInit_internal,
                          (cublasLtMatmulPreference_t preference, size_t size), (preference, size))
TENSORD_CUBLASLT_FUNCTION(cublasLtMatmulPreferenceSetAttribute,
                          (cublasLtMatmulPreference_t preference,
                           cublasLtMatmulPreferenceAttributes_t attribute, const void* value,
                           size_t size),
                          (preference, attribute, value, size))
TENSORD_CUBLASLT_FUNCTION(cublasLtMatmulAlgoGetHeuristic,
                          (cublasLtHandle_t handle, cublasLtMatmulDesc_t matmul,
                           cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                           cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                           cublasLtMatmulPreference_t preference, int requested,
                           cublasLtMatmulHeuristicResult_t results[], int* found),
                          (handle, matmul, a, b, c, d, preference, requested, results, found))
TENSORD_CUBLASLT_FUNCTION(cublasLtMatmul,
                          (cublasLtHandle_t handle, cublasLtMatmulDesc_t matmul, const void* alpha,
                           const void* a, cublasLtMatrixLayout_t a_layout, const void* b,
                           cublasLtMatrixLayout_t b_layout, const void* beta, const void* c,
                           cublasLtMatrixLayout_t c_layout, void* d,
                           cublasLtMatrixLayout_t d_layout, const cublasLtMatmulAlgo_t* algorithm,
                           void* workspace, size_t workspace_bytes, cudaStream_t stream),
                          (handle, matmul, alpha, a, a_layout, b, b_layout, beta, c, c_layout, d,
                           d_layout, algorithm, workspace, workspace_bytes, stream))

}  // namespace tensord::server::cuda
