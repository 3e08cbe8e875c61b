// The part of cuBLASLt that the backend uses. If an attribute, a type or an epilogue isn't
// emulated, returns CUBLAS_STATUS_NOT_SUPPORTED.
#include <cublasLt.h>

#include <cstring>
#include <memory>

#include "tensord/tests/cuda_emulation/address_space.h"
#include "tensord/tests/cuda_emulation/control.h"
#include "tensord/tests/cuda_emulation/device.h"
#include "tensord/tests/cuda_emulation/failure.h"
#include "tensord/tests/cuda_emulation/handles.h"
#include "tensord/tests/cuda_emulation/kernel.h"
#include "tensord/tests/cuda_emulation/matrix_product.h"
#include "tensord/tests/cuda_emulation/memory.h"
#include "tensord/tests/cuda_emulation/stream.h"

namespace tensord::cuda_emulation {
namespace {

class BlasHandle {
 public:
  explicit BlasHandle(int device) : device_(device) {}
  int device() const { return device_; }

 private:
  const int device_;  // the device that was current when the handle was created
};

HandleTable<cublasLtHandle_t, BlasHandle>& BlasHandles() {
  static auto* table = new HandleTable<cublasLtHandle_t, BlasHandle>("a handle of cuBLASLt");
  return *table;
}

}  // namespace

void ResetBlasHandles(int device) { BlasHandles().RemoveAllOf(device); }
size_t LiveBlasHandles() { return BlasHandles().size(); }

}  // namespace tensord::cuda_emulation

using namespace tensord::cuda_emulation;  // NOLINT(google-build-using-namespace)

// The first statement of a function. If an error is injected, returns it from the function.
#define TENSORD_EMULATION_ENTER_BLAS()                                                \
  if (const auto tensord_injected = static_cast<cublasStatus_t>(CountCall(__func__)); \
      tensord_injected != CUBLAS_STATUS_SUCCESS)                                      \
  return tensord_injected

namespace {

constexpr size_t kWorkspaceBytes = 64 << 10;  // every algorithm overwrites this much

// The contents of a cublasLtMatmulDesc_t.
struct Description {
  cublasComputeType_t compute;
  cudaDataType_t scale;
  int32_t transpose_a, transpose_b;
  uint32_t epilogue;
  const void* bias;
};
static_assert(sizeof(Description) <= sizeof(cublasLtMatmulDescOpaque_t));
static_assert(sizeof(MatrixLayout) <= sizeof(cublasLtMatrixLayoutOpaque_t));

Description& ContentsOf(cublasLtMatmulDesc_t matmul) {
  return *reinterpret_cast<Description*>(matmul);
}
MatrixLayout& ContentsOf(cublasLtMatrixLayout_t layout) {
  return *reinterpret_cast<MatrixLayout*>(layout);
}

template <typename T>
cublasStatus_t Assign(T* to, const void* value, size_t bytes) {
  if (bytes != sizeof(T)) return CUBLAS_STATUS_INVALID_VALUE;
  std::memcpy(to, value, bytes);
  return CUBLAS_STATUS_SUCCESS;
}

bool IsKnownEpilogue(uint32_t epilogue) {
  switch (epilogue) {
    case CUBLASLT_EPILOGUE_DEFAULT:
    case CUBLASLT_EPILOGUE_RELU:
    case CUBLASLT_EPILOGUE_BIAS:
    case CUBLASLT_EPILOGUE_RELU_BIAS:
    case CUBLASLT_EPILOGUE_GELU:
    case CUBLASLT_EPILOGUE_GELU_BIAS:
      return true;
    default:
      return false;
  }
}

MatrixProduct Describe(const Description& d, cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                       cublasLtMatrixLayout_t out) {
  MatrixProduct product;
  product.transpose_a = d.transpose_a != CUBLAS_OP_N;
  product.transpose_b = d.transpose_b != CUBLAS_OP_N;
  product.in_double = d.scale == CUDA_R_64F;
  product.round_to_tf32 = d.compute == CUBLAS_COMPUTE_32F_FAST_TF32;
  if ((d.epilogue & CUBLASLT_EPILOGUE_RELU) != 0) product.activation = Activation::kRelu;
  if ((d.epilogue & CUBLASLT_EPILOGUE_GELU) != 0) product.activation = Activation::kGeluTanh;
  if ((d.epilogue & CUBLASLT_EPILOGUE_BIAS) != 0) product.bias = d.bias;
  product.a_layout = ContentsOf(a);
  product.b_layout = ContentsOf(b);
  product.out_layout = ContentsOf(out);
  return product;
}

// Returns whether the combination of types is one of cublasLtMatmul()'s documentation that is
// emulated: a and b have the same type; the output has that type, or float32 if a and b have 16
// bits.
bool AreTypesSupported(const Description& d, const MatrixProduct& p) {
  const cudaDataType_t in = p.a_layout.type, out = p.out_layout.type;
  if (p.b_layout.type != in) return false;
  if (in == CUDA_R_64F || d.scale == CUDA_R_64F) {
    return in == CUDA_R_64F && out == in && d.scale == in && d.compute == CUBLAS_COMPUTE_64F;
  }
  const bool narrow = in == CUDA_R_16F || in == CUDA_R_16BF;
  return d.scale == CUDA_R_32F && d.compute != CUBLAS_COMPUTE_64F &&
         (out == in || (narrow && out == CUDA_R_32F));
}

cublasStatus_t CheckSupported(const Description& d, const MatrixProduct& p) {
  if (!IsConsistent(p)) return CUBLAS_STATUS_INVALID_VALUE;
  const bool plain = d.epilogue == CUBLASLT_EPILOGUE_DEFAULT;
  if (!AreTypesSupported(d, p) || !IsKnownEpilogue(d.epilogue) ||
      (!plain && (p.in_double || TheOptions().refuse_epilogues)) ||
      (p.out_layout.batch > 1 && TheOptions().refuse_batches)) {
    return CUBLAS_STATUS_NOT_SUPPORTED;
  }
  return CUBLAS_STATUS_SUCCESS;
}

double Scalar(const void* value, bool in_double) {
  return in_double ? *static_cast<const double*>(value) : *static_cast<const float*>(value);
}

}  // namespace

extern "C" {

size_t cublasLtGetVersion() { return CUBLAS_VERSION; }

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  TENSORD_EMULATION_ENTER_BLAS();
  *handle = BlasHandles().Add(std::make_shared<BlasHandle>(CurrentDevice()));
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
  const bool existed = BlasHandles().Remove(handle, "cublasLtDestroy") != nullptr;
  return existed ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_INITIALIZED;
}

cublasStatus_t cublasLtMatrixLayoutInit_internal(cublasLtMatrixLayout_t layout, size_t /*size*/,
                                                 cudaDataType type, uint64_t rows, uint64_t columns,
                                                 int64_t leading_dimension) {
  TENSORD_EMULATION_ENTER_BLAS();
  ContentsOf(layout) = {type, rows, columns, leading_dimension, /*batch=*/1, /*batch_stride=*/0};
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout,
                                                cublasLtMatrixLayoutAttribute_t attribute,
                                                const void* value, size_t bytes) {
  TENSORD_EMULATION_ENTER_BLAS();
  switch (attribute) {
    case CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT:
      return Assign(&ContentsOf(layout).batch, value, bytes);
    case CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET:
      return Assign(&ContentsOf(layout).batch_stride, value, bytes);
    default:
      return CUBLAS_STATUS_NOT_SUPPORTED;
  }
}

cublasStatus_t cublasLtMatmulDescInit_internal(cublasLtMatmulDesc_t matmul, size_t /*size*/,
                                               cublasComputeType_t compute, cudaDataType_t scale) {
  TENSORD_EMULATION_ENTER_BLAS();
  ContentsOf(matmul) = {compute, scale, CUBLAS_OP_N, CUBLAS_OP_N, CUBLASLT_EPILOGUE_DEFAULT,
                        nullptr};
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t matmul,
                                              cublasLtMatmulDescAttributes_t attribute,
                                              const void* value, size_t bytes) {
  TENSORD_EMULATION_ENTER_BLAS();
  switch (attribute) {
    case CUBLASLT_MATMUL_DESC_TRANSA:
      return Assign(&ContentsOf(matmul).transpose_a, value, bytes);
    case CUBLASLT_MATMUL_DESC_TRANSB:
      return Assign(&ContentsOf(matmul).transpose_b, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
      return Assign(&ContentsOf(matmul).epilogue, value, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
      return Assign(&ContentsOf(matmul).bias, value, bytes);
    default:
      return CUBLAS_STATUS_NOT_SUPPORTED;
  }
}

cublasStatus_t cublasLtMatmulPreferenceInit_internal(cublasLtMatmulPreference_t preference,
                                                     size_t /*size*/) {
  TENSORD_EMULATION_ENTER_BLAS();
  std::memset(preference, 0, sizeof(*preference));
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t /*preference*/,
                                                    cublasLtMatmulPreferenceAttributes_t attribute,
                                                    const void* /*value*/, size_t bytes) {
  TENSORD_EMULATION_ENTER_BLAS();
  const bool wide = attribute == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES;
  return bytes == (wide ? sizeof(uint64_t) : sizeof(uint32_t)) ? CUBLAS_STATUS_SUCCESS
                                                               : CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t matmul,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t /*c*/,
                                              cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t /*preference*/,
                                              int /*wanted*/,
                                              cublasLtMatmulHeuristicResult_t* result, int* found) {
  TENSORD_EMULATION_ENTER_BLAS();
  *found = 0;
  if (BlasHandles().Find(handle, "cublasLtMatmulAlgoGetHeuristic") == nullptr) {
    return CUBLAS_STATUS_NOT_INITIALIZED;
  }
  const cublasStatus_t status =
      CheckSupported(ContentsOf(matmul), Describe(ContentsOf(matmul), a, b, d));
  if (status != CUBLAS_STATUS_SUCCESS) return status;
  *result = {};
  result->state = CUBLAS_STATUS_SUCCESS;
  result->workspaceSize = kWorkspaceBytes;
  *found = 1;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t matmul,
                              const void* alpha, const void* a, cublasLtMatrixLayout_t a_layout,
                              const void* b, cublasLtMatrixLayout_t b_layout, const void* beta,
                              const void* c, cublasLtMatrixLayout_t c_layout, void* d,
                              cublasLtMatrixLayout_t d_layout,
                              const cublasLtMatmulAlgo_t* /*algorithm*/, void* workspace,
                              size_t workspace_bytes, cudaStream_t stream_handle) {
  TENSORD_EMULATION_ENTER_BLAS();
  const auto blas = BlasHandles().Find(handle, "cublasLtMatmul");
  if (blas == nullptr) return CUBLAS_STATUS_NOT_INITIALIZED;
  MatrixProduct product = Describe(ContentsOf(matmul), a_layout, b_layout, d_layout);
  const cublasStatus_t status = CheckSupported(ContentsOf(matmul), product);
  if (status != CUBLAS_STATUS_SUCCESS) return status;
  product.beta = Scalar(beta, product.in_double);
  const bool in_place = c == d && c_layout == d_layout;
  if ((product.beta != 0 && !in_place) || workspace_bytes < kWorkspaceBytes) {
    Report("cublasLtMatmul: c isn't d, or the workspace is smaller than the algorithm needs");
    return CUBLAS_STATUS_NOT_SUPPORTED;
  }
  StreamRef stream;
  if (UseStream(stream_handle, "cublasLtMatmul's stream", &stream) != cudaSuccess) {
    return CUBLAS_STATUS_EXECUTION_FAILED;
  }
  const int device = stream->device();
  if (device != CurrentDevice() || device != blas->device()) {
    Report("cublasLtMatmul: the stream and the handle must belong to the current device");
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  product.alpha = Scalar(alpha, product.in_double);
  product.a = KernelAddress(a, device);
  product.b = KernelAddress(b, device);
  product.out = KernelAddress(d, device);
  product.bias = KernelAddress(product.bias, device);
  const cudaError_t error = stream->EnqueueWork([=, scratch = KernelAddress(workspace, device)] {
    RunCatchingFaults(device, "cublasLtMatmul", [&] {
      Compute(product);
      FillWithPattern(scratch, workspace_bytes);
    });
  });
  return error == cudaSuccess ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_EXECUTION_FAILED;
}

}  // extern "C"
