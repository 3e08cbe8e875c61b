#include "tensord/tests/gpu/direct.h"

#include <cstring>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tensord/common/util/status_macros.h"

namespace tensord::gpu {
namespace {

constexpr int64_t kWorkspaceBytes = int64_t{32} << 20;  // the same as in the device layer

absl::Status CudaStatus(cudaError_t error, const char* call) {
  if (error == cudaSuccess) return absl::OkStatus();
  cudaGetLastError();
  return absl::InternalError(absl::StrCat(call, ": ", cudaGetErrorString(error)));
}

absl::Status BlasStatus(cublasStatus_t status, const char* call) {
  if (status == CUBLAS_STATUS_SUCCESS) return absl::OkStatus();
  return absl::InternalError(absl::StrCat(call, ": ", cublasLtGetStatusString(status)));
}

#define RETURN_IF_CUDA_ERROR(call) TENSORD_RETURN_IF_ERROR(CudaStatus(call, #call))
#define RETURN_IF_BLAS_ERROR(call) TENSORD_RETURN_IF_ERROR(BlasStatus(call, #call))

cudaDataType_t TypeOf(DType dtype) {
  if (dtype == DType::kFloat16) return CUDA_R_16F;
  return dtype == DType::kBFloat16 ? CUDA_R_16BF : CUDA_R_32F;
}

using Place = CudaMemory::Place;

absl::StatusOr<CudaMemory> MakePinnedData(DType dtype, int64_t elements, uint32_t seed) {
  const std::vector<uint8_t> data = MakeData(dtype, elements, seed);
  TENSORD_ASSIGN_OR_RETURN(CudaMemory memory,
                           CudaMemory::Make(static_cast<int64_t>(data.size()), Place::kPinnedHost));
  std::memcpy(memory.get(), data.data(), data.size());
  return memory;
}

absl::Status Copy(void* to, const void* from, int64_t bytes, cudaMemcpyKind kind,
                  const CudaStream& stream) {
  RETURN_IF_CUDA_ERROR(cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), kind, stream.get()));
  return absl::OkStatus();
}

absl::StatusOr<CudaMemory> Upload(DType dtype, int64_t elements, uint32_t seed,
                                  const CudaStream& stream) {
  const int64_t bytes = elements * SizeOf(dtype);
  TENSORD_ASSIGN_OR_RETURN(const CudaMemory pinned, MakePinnedData(dtype, elements, seed));
  TENSORD_ASSIGN_OR_RETURN(CudaMemory memory, CudaMemory::Make(bytes, Place::kDevice));
  TENSORD_RETURN_IF_ERROR(Copy(memory.get(), pinned.get(), bytes, cudaMemcpyHostToDevice, stream));
  TENSORD_RETURN_IF_ERROR(stream.Wait());
  return memory;
}

template <typename T>
cublasStatus_t SetMatmul(cublasLtMatmulDesc_t matmul, cublasLtMatmulDescAttributes_t attribute,
                         T value) {
  return cublasLtMatmulDescSetAttribute(matmul, attribute, &value, sizeof(value));
}

}  // namespace

absl::StatusOr<CudaMemory> CudaMemory::Make(int64_t bytes, Place place) {
  CudaMemory memory;
  memory.place_ = place;
  const auto size = static_cast<size_t>(bytes);
  RETURN_IF_CUDA_ERROR(place == Place::kDevice
                           ? cudaMalloc(&memory.data_, size)
                           : cudaHostAlloc(&memory.data_, size, cudaHostAllocDefault));
  return memory;
}

CudaMemory::CudaMemory(CudaMemory&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), place_(other.place_) {}

CudaMemory& CudaMemory::operator=(CudaMemory&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(place_, other.place_);
  return *this;
}

CudaMemory::~CudaMemory() {
  if (data_ == nullptr) return;
  place_ == Place::kDevice ? cudaFree(data_) : cudaFreeHost(data_);
}

absl::StatusOr<CudaStream> CudaStream::Make() {
  CudaStream stream;
  RETURN_IF_CUDA_ERROR(cudaStreamCreateWithFlags(&stream.stream_, cudaStreamNonBlocking));
  return stream;
}

CudaStream::CudaStream(CudaStream&& other) noexcept
    : stream_(std::exchange(other.stream_, nullptr)) {}

CudaStream& CudaStream::operator=(CudaStream&& other) noexcept {
  std::swap(stream_, other.stream_);
  return *this;
}

CudaStream::~CudaStream() {
  if (stream_ != nullptr) cudaStreamDestroy(stream_);
}

absl::Status CudaStream::Wait() const {
  RETURN_IF_CUDA_ERROR(cudaStreamSynchronize(stream_));
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<DirectCopy>> DirectCopy::Make(int64_t bytes, cudaMemcpyKind kind) {
  std::shared_ptr<DirectCopy> copy(new DirectCopy);
  copy->bytes_ = bytes;
  copy->kind_ = kind;
  TENSORD_ASSIGN_OR_RETURN(copy->stream_, CudaStream::Make());
  // Copies random data: copies of zeros could be faster.
  const int64_t elements = (bytes + 1) / 2;
  if (kind == cudaMemcpyHostToDevice) {
    TENSORD_ASSIGN_OR_RETURN(copy->from_, MakePinnedData(DType::kFloat16, elements, 1));
  } else {
    TENSORD_ASSIGN_OR_RETURN(copy->from_, Upload(DType::kFloat16, elements, 1, copy->stream_));
  }
  TENSORD_ASSIGN_OR_RETURN(
      copy->to_, CudaMemory::Make(
                     bytes, kind == cudaMemcpyDeviceToHost ? Place::kPinnedHost : Place::kDevice));
  return copy;
}

absl::Status DirectCopy::Run(int count) const {
  for (int i = 0; i < count; ++i) {
    TENSORD_RETURN_IF_ERROR(Copy(to_.get(), from_.get(), bytes_, kind_, stream_));
    if (kind_ != cudaMemcpyDeviceToDevice) TENSORD_RETURN_IF_ERROR(stream_.Wait());
  }
  return stream_.Wait();
}

absl::StatusOr<std::shared_ptr<DirectMatmul>> DirectMatmul::Make(const DirectProblem& problem) {
  std::shared_ptr<DirectMatmul> direct(new DirectMatmul);
  direct->problem_ = problem;
  const auto& [dtype, tf32, m, k, n, linear, gelu] = problem;
  TENSORD_ASSIGN_OR_RETURN(direct->stream_, CudaStream::Make());
  TENSORD_ASSIGN_OR_RETURN(direct->a_, Upload(dtype, m * k, 1, direct->stream_));
  TENSORD_ASSIGN_OR_RETURN(direct->b_, Upload(dtype, k * n, 2, direct->stream_));
  if (linear) {
    TENSORD_ASSIGN_OR_RETURN(direct->bias_, Upload(dtype, n, 3, direct->stream_));
  }
  TENSORD_ASSIGN_OR_RETURN(direct->out_, CudaMemory::Make(m * n * SizeOf(dtype), Place::kDevice));
  TENSORD_ASSIGN_OR_RETURN(direct->workspace_, CudaMemory::Make(kWorkspaceBytes, Place::kDevice));
  RETURN_IF_BLAS_ERROR(cublasLtCreate(&direct->handle_));
  TENSORD_RETURN_IF_ERROR(direct->Fill());
  TENSORD_RETURN_IF_ERROR(direct->ChooseAlgorithm());
  return direct;
}

DirectMatmul::~DirectMatmul() {
  if (handle_ != nullptr) cublasLtDestroy(handle_);
}

// A row-major matrix is, byte for byte, the column-major matrix of its transpose: cuBLASLt computes
// outᵀ(n,m) = bᵀ(n,k) · aᵀ(k,m).
absl::Status DirectMatmul::Fill() {
  const auto& [dtype, tf32, m, k, n, linear, gelu] = problem_;
  RETURN_IF_BLAS_ERROR(cublasLtMatmulDescInit(
      &matmul_, tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F, CUDA_R_32F));
  const auto rows = static_cast<uint64_t>(n), inner = static_cast<uint64_t>(k);
  RETURN_IF_BLAS_ERROR(cublasLtMatrixLayoutInit(&left_, TypeOf(dtype), linear ? inner : rows,
                                                linear ? rows : inner, linear ? k : n));
  RETURN_IF_BLAS_ERROR(
      cublasLtMatrixLayoutInit(&right_, TypeOf(dtype), inner, static_cast<uint64_t>(m), k));
  RETURN_IF_BLAS_ERROR(
      cublasLtMatrixLayoutInit(&result_, TypeOf(dtype), rows, static_cast<uint64_t>(m), n));
  if (!linear) return absl::OkStatus();
  RETURN_IF_BLAS_ERROR(SetMatmul(&matmul_, CUBLASLT_MATMUL_DESC_TRANSA, CUBLAS_OP_T));
  RETURN_IF_BLAS_ERROR(SetMatmul(&matmul_, CUBLASLT_MATMUL_DESC_EPILOGUE,
                                 gelu ? CUBLASLT_EPILOGUE_GELU_BIAS : CUBLASLT_EPILOGUE_BIAS));
  RETURN_IF_BLAS_ERROR(SetMatmul(&matmul_, CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias_.get()));
  return absl::OkStatus();
}

absl::Status DirectMatmul::ChooseAlgorithm() {
  cublasLtMatmulPreferenceOpaque_t preference;
  RETURN_IF_BLAS_ERROR(cublasLtMatmulPreferenceInit(&preference));
  const auto limit = static_cast<uint64_t>(kWorkspaceBytes);
  RETURN_IF_BLAS_ERROR(cublasLtMatmulPreferenceSetAttribute(
      &preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &limit, sizeof(limit)));
  cublasLtMatmulHeuristicResult_t best = {};
  int found = 0;
  RETURN_IF_BLAS_ERROR(cublasLtMatmulAlgoGetHeuristic(handle_, &matmul_, &left_, &right_, &result_,
                                                      &result_, &preference, 1, &best, &found));
  if (found == 0) return absl::InternalError("cuBLASLt has no algorithm for this product");
  algorithm_ = best.algo;
  workspace_bytes_ = best.workspaceSize;
  return absl::OkStatus();
}

absl::Status DirectMatmul::Run(int count) {
  const float one = 1, zero = 0;
  for (int i = 0; i < count; ++i) {
    RETURN_IF_BLAS_ERROR(cublasLtMatmul(
        handle_, &matmul_, &one, b_.get(), &left_, a_.get(), &right_, &zero, out_.get(), &result_,
        out_.get(), &result_, &algorithm_, workspace_.get(), workspace_bytes_, stream_.get()));
  }
  return stream_.Wait();
}

absl::StatusOr<Checksum> DirectMatmul::ResultChecksum() const {
  const int64_t bytes = problem_.m * problem_.n * SizeOf(problem_.dtype);
  TENSORD_ASSIGN_OR_RETURN(const CudaMemory host, CudaMemory::Make(bytes, Place::kPinnedHost));
  TENSORD_RETURN_IF_ERROR(Copy(host.get(), out_.get(), bytes, cudaMemcpyDeviceToHost, stream_));
  TENSORD_RETURN_IF_ERROR(stream_.Wait());
  return ChecksumOf(problem_.dtype, absl::MakeConstSpan(static_cast<const uint8_t*>(host.get()),
                                                        static_cast<size_t>(bytes)));
}

}  // namespace tensord::gpu
