// cuBLASLt's matrices are column-major. A row-major (r, c) matrix has the same bytes as its
// transpose as a column-major (c, r) matrix. So cuBLASLt computes outᵀ = bᵀ · aᵀ instead of
// out = a · b. Its left operand is b and its right operand is a. Its result has n rows and m
// columns. Its bias has an element for each row of the result, which is a column of out.
#include "tensord/server/device/cuda/blas.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tensord/common/util/status_macros.h"
#include "tensord/server/device/cuda/cuda_status.h"
#include "tensord/server/device/stop_token.h"

namespace tensord::server::cuda {
namespace {

constexpr int64_t kWorkspaceBytes = int64_t{32} << 20;  // NVIDIA's recommendation for Hopper
constexpr size_t kMaxPlans = 1024;
constexpr uint32_t kMaxAlignment = 256;

cudaDataType_t DataType(DType dtype) {
  switch (dtype) {
    case DType::kFloat16:
      return CUDA_R_16F;
    case DType::kBFloat16:
      return CUDA_R_16BF;
    case DType::kFloat64:
      return CUDA_R_64F;
    default:
      return CUDA_R_32F;
  }
}

cublasComputeType_t ComputeType(const MatmulProblem& problem) {
  if (problem.dtype == DType::kFloat64) return CUBLAS_COMPUTE_64F;
  const bool tf32 = problem.dtype == DType::kFloat32 && problem.allow_tf32;
  return tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
}

cublasLtEpilogue_t LibraryEpilogue(const MatmulProblem& problem) {
  switch (problem.epilogue) {
    case Epilogue::kRelu:
      return problem.bias ? CUBLASLT_EPILOGUE_RELU_BIAS : CUBLASLT_EPILOGUE_RELU;
    case Epilogue::kGeluTanh:
      return problem.bias ? CUBLASLT_EPILOGUE_GELU_BIAS : CUBLASLT_EPILOGUE_GELU;
    default:
      return problem.bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
  }
}

// Returns the greatest power of two that divides the address, at most kMaxAlignment.
uint32_t AlignmentOf(const void* address) {
  const auto value = reinterpret_cast<uintptr_t>(address);
  if (value == 0) return kMaxAlignment;
  return static_cast<uint32_t>(std::min<uintptr_t>(value & (~value + 1), kMaxAlignment));
}

template <typename T>
cublasStatus_t SetMatmul(cublasLtMatmulDesc_t matmul, cublasLtMatmulDescAttributes_t attribute,
                         T value) {
  return cublasLtMatmulDescSetAttribute(matmul, attribute, &value, sizeof(value));
}

template <typename T>
cublasStatus_t SetPreference(cublasLtMatmulPreference_t preference,
                             cublasLtMatmulPreferenceAttributes_t attribute, T value) {
  return cublasLtMatmulPreferenceSetAttribute(preference, attribute, &value, sizeof(value));
}

// Describes `batch` column-major matrices, `stride` elements apart. Their columns are
// `column_stride` elements apart; 0: they are dense.
absl::Status FillLayout(cublasLtMatrixLayout_t layout, DType dtype, int64_t rows, int64_t columns,
                        int64_t column_stride, int64_t batch, int64_t stride) {
  TENSORD_CUBLAS_RETURN_IF_ERROR(cublasLtMatrixLayoutInit(
      layout, DataType(dtype), static_cast<uint64_t>(rows), static_cast<uint64_t>(columns),
      column_stride == 0 ? rows : column_stride));
  if (batch == 1) return absl::OkStatus();
  const auto count = static_cast<int32_t>(batch);
  TENSORD_CUBLAS_RETURN_IF_ERROR(cublasLtMatrixLayoutSetAttribute(
      layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count, sizeof(count)));
  TENSORD_CUBLAS_RETURN_IF_ERROR(cublasLtMatrixLayoutSetAttribute(
      layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &stride, sizeof(stride)));
  return absl::OkStatus();
}

// Returns the number of elements from one item of the result to the next.
int64_t OutStride(const MatmulProblem& p) { return p.out_stride == 0 ? p.m * p.n : p.out_stride; }

}  // namespace

absl::StatusOr<std::unique_ptr<Blas>> Blas::Create(cudaStream_t stream) {
  std::unique_ptr<Blas> blas(new Blas);
  blas->stream_ = stream;
  if (cublasLtGetVersion() == 0) return blas;
  TENSORD_CUBLAS_RETURN_IF_ERROR(cublasLtCreate(&blas->handle_));
  TENSORD_ASSIGN_OR_RETURN(blas->workspace_, MakeDeviceMemory(kWorkspaceBytes));
  return blas;
}

absl::Status Blas::CheckLibrary() {
  if (cublasLtGetVersion() != 0) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("matrix products on a GPU need cuBLASLt: ",
                   cublasLtGetStatusString(CUBLAS_STATUS_NOT_INITIALIZED)));
}

Blas::~Blas() {
  if (handle_ != nullptr) cublasLtDestroy(handle_);
}

absl::Status Blas::FillPlan(Plan& plan, const void* bias) const {
  const MatmulProblem& p = plan.key.problem;
  const cudaDataType_t scale = p.dtype == DType::kFloat64 ? CUDA_R_64F : CUDA_R_32F;
  TENSORD_CUBLAS_RETURN_IF_ERROR(cublasLtMatmulDescInit(&plan.matmul, ComputeType(p), scale));
  TENSORD_CUBLAS_RETURN_IF_ERROR(SetMatmul(&plan.matmul, CUBLASLT_MATMUL_DESC_TRANSA,
                                           p.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N));
  TENSORD_CUBLAS_RETURN_IF_ERROR(SetMatmul(&plan.matmul, CUBLASLT_MATMUL_DESC_TRANSB,
                                           p.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N));
  TENSORD_CUBLAS_RETURN_IF_ERROR(
      SetMatmul(&plan.matmul, CUBLASLT_MATMUL_DESC_EPILOGUE, LibraryEpilogue(p)));
  if (p.bias) {  // the choice of an algorithm depends on it
    TENSORD_CUBLAS_RETURN_IF_ERROR(
        SetMatmul(&plan.matmul, CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias));
  }
  // b is stored row-major as (k, n) or, if transposed, (n, k), and a as (m, k) or (k, m). As
  // column-major matrices their rows and columns are swapped.
  TENSORD_RETURN_IF_ERROR(FillLayout(&plan.left, p.dtype, p.transpose_b ? p.k : p.n,
                                     p.transpose_b ? p.n : p.k, 0, p.batch, p.b_stride));
  TENSORD_RETURN_IF_ERROR(FillLayout(&plan.right, p.dtype, p.transpose_a ? p.m : p.k,
                                     p.transpose_a ? p.k : p.m, p.a_row_stride, p.batch,
                                     p.a_stride));
  const DType out_dtype = p.float32_out ? DType::kFloat32 : p.dtype;
  TENSORD_RETURN_IF_ERROR(
      FillLayout(&plan.out, out_dtype, p.n, p.m, p.out_row_stride, p.batch, OutStride(p)));
  return ChooseAlgorithm(plan);
}

absl::Status Blas::ChooseAlgorithm(Plan& plan) const {
  cublasLtMatmulPreferenceOpaque_t preference;
  TENSORD_CUBLAS_RETURN_IF_ERROR(cublasLtMatmulPreferenceInit(&preference));
  TENSORD_CUBLAS_RETURN_IF_ERROR(SetPreference(&preference,
                                               CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                               static_cast<uint64_t>(kWorkspaceBytes)));
  // Partial sums are added in the compute type. Adding them in float16 would lose precision.
  TENSORD_CUBLAS_RETURN_IF_ERROR(
      SetPreference(&preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
                    static_cast<uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE)));
  const Alignment& alignment = plan.key.alignment;
  TENSORD_CUBLAS_RETURN_IF_ERROR(
      SetPreference(&preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignment.b));
  TENSORD_CUBLAS_RETURN_IF_ERROR(
      SetPreference(&preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignment.a));
  TENSORD_CUBLAS_RETURN_IF_ERROR(
      SetPreference(&preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignment.out));
  TENSORD_CUBLAS_RETURN_IF_ERROR(
      SetPreference(&preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignment.out));
  cublasLtMatmulHeuristicResult_t result = {};
  int found = 0;
  const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(
      handle_, &plan.matmul, &plan.left, &plan.right, &plan.out, &plan.out, &preference,
      /*requestedAlgoCount=*/1, &result, &found);
  // If a size exceeds the library's integer types, it returns INVALID_VALUE.
  if (status == CUBLAS_STATUS_INVALID_VALUE || status == CUBLAS_STATUS_NOT_SUPPORTED ||
      (status == CUBLAS_STATUS_SUCCESS && found == 0)) {
    return absl::UnimplementedError("cuBLASLt has no algorithm for a product of this kind");
  }
  if (status != CUBLAS_STATUS_SUCCESS) {
    return CublasStatus(status, "cublasLtMatmulAlgoGetHeuristic");
  }
  if (result.state != CUBLAS_STATUS_SUCCESS) {
    return CublasStatus(result.state, "cublasLtMatmulAlgoGetHeuristic");
  }
  plan.algorithm = result.algo;
  plan.workspace_bytes = result.workspaceSize;
  return absl::OkStatus();
}

absl::StatusOr<Blas::Plan*> Blas::PlanFor(const Key& key, const void* bias) {
  if (auto it = plan_by_key_.find(key); it != plan_by_key_.end()) {
    plans_.splice(plans_.begin(), plans_, it->second);
    return &plans_.front();
  }
  if (plans_.size() >= kMaxPlans) {
    plan_by_key_.erase(plans_.back().key);
    plans_.pop_back();
  }
  Plan& plan = plans_.emplace_front();
  plan.key = key;
  plan.status = FillPlan(plan, bias);
  if (!plan.status.ok() && !absl::IsUnimplemented(plan.status)) {
    const absl::Status failure = std::move(plan.status);
    plans_.pop_front();
    return failure;
  }
  plan_by_key_[key] = plans_.begin();
  return &plan;
}

absl::Status Blas::Multiply(const MatmulProblem& problem, const void* a, const void* b,
                            const void* bias, void* out) {
  if (handle_ == nullptr) return CheckLibrary();
  TENSORD_ASSIGN_OR_RETURN(
      Plan* const kept,
      PlanFor({problem, {AlignmentOf(a), AlignmentOf(b), AlignmentOf(out), AlignmentOf(bias)}},
              bias));
  Plan& plan = *kept;
  if (!plan.status.ok()) return plan.status;
  if (problem.bias) {
    TENSORD_CUBLAS_RETURN_IF_ERROR(
        SetMatmul(&plan.matmul, CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias));
  }
  const float alpha32 = 1, beta32 = problem.accumulates ? 1 : 0;
  const double alpha64 = 1, beta64 = beta32;
  const bool in_double = problem.dtype == DType::kFloat64;
  const void* alpha = in_double ? static_cast<const void*>(&alpha64) : &alpha32;
  const void* beta = in_double ? static_cast<const void*>(&beta64) : &beta32;
  TENSORD_CUBLAS_RETURN_IF_ERROR(cublasLtMatmul(
      handle_, &plan.matmul, alpha, b, &plan.left, a, &plan.right, beta, out, &plan.out, out,
      &plan.out, &plan.algorithm, workspace_.get(), plan.workspace_bytes, stream_));
  return absl::OkStatus();
}

absl::Status MultiplyItems(const MatmulProblem& problem, const void* a, const void* b, void* out,
                           Blas& blas) {
  const DType out_dtype = problem.float32_out ? DType::kFloat32 : problem.dtype;
  const int64_t a_bytes = problem.a_stride * SizeOf(problem.dtype);
  const int64_t b_bytes = problem.b_stride * SizeOf(problem.dtype);
  const int64_t out_bytes = OutStride(problem) * SizeOf(out_dtype);
  int64_t at_once = std::min(problem.batch, Blas::kMaxBatch);
  for (int64_t item = 0; item < problem.batch;) {
    TENSORD_RETURN_IF_ERROR(CheckStop());
    MatmulProblem part = problem;
    part.batch = std::min(at_once, problem.batch - item);
    if (part.batch == 1) part.a_stride = part.b_stride = part.out_stride = 0;
    const absl::Status status = blas.Multiply(part, static_cast<const char*>(a) + item * a_bytes,
                                              static_cast<const char*>(b) + item * b_bytes, nullptr,
                                              static_cast<char*>(out) + item * out_bytes);
    if (absl::IsUnimplemented(status) && part.batch > 1) {
      at_once = 1;
      continue;
    }
    TENSORD_RETURN_IF_ERROR(status);
    item += part.batch;
  }
  return absl::OkStatus();
}

}  // namespace tensord::server::cuda
