// The same work by direct calls of cuBLASLt and the CUDA runtime, on a stream of its own: what the
// device layer is compared with.
#pragma once

#include <cublasLt.h>
#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tensord/common/dtype.h"
#include "tensord/tests/gpu/test_data.h"

namespace tensord::gpu {

// Device memory, or host memory that the GPU copies at its best speed. Freed with its owner.
class CudaMemory {
 public:
  enum class Place { kDevice, kPinnedHost };
  static absl::StatusOr<CudaMemory> Make(int64_t bytes, Place place);
  CudaMemory() = default;
  CudaMemory(CudaMemory&& other) noexcept;
  CudaMemory& operator=(CudaMemory&& other) noexcept;
  ~CudaMemory();
  void* get() const { return data_; }

 private:
  void* data_ = nullptr;
  Place place_ = Place::kDevice;
};

class CudaStream {
 public:
  static absl::StatusOr<CudaStream> Make();
  CudaStream() = default;
  CudaStream(CudaStream&& other) noexcept;
  CudaStream& operator=(CudaStream&& other) noexcept;
  ~CudaStream();
  cudaStream_t get() const { return stream_; }
  absl::Status Wait() const;

 private:
  cudaStream_t stream_ = nullptr;
};

// Copies of `bytes` by cudaMemcpyAsync between device memory and pinned host memory. Each copy to
// or from the host is waited for.
class DirectCopy {
 public:
  static absl::StatusOr<std::shared_ptr<DirectCopy>> Make(int64_t bytes, cudaMemcpyKind kind);
  absl::Status Run(int count) const;

 private:
  DirectCopy() = default;

  CudaStream stream_;
  CudaMemory from_, to_;
  int64_t bytes_ = 0;
  cudaMemcpyKind kind_ = cudaMemcpyDeviceToDevice;
};

// a(m,k) · b(k,n), or if `linear` x(m,k) · w(n,k)ᵀ + bias(n). All row-major and dense.
struct DirectProblem {
  DType dtype = DType::kFloat32;
  bool tf32 = false;
  int64_t m = 0, k = 0, n = 0;
  bool linear = false;
  bool gelu_tanh = false;  // of a linear's result
};

class DirectMatmul {
 public:
  // Operand i has the data of seed i + 1.
  static absl::StatusOr<std::shared_ptr<DirectMatmul>> Make(const DirectProblem& problem);
  ~DirectMatmul();
  absl::Status Run(int count);
  absl::StatusOr<Checksum> ResultChecksum() const;

 private:
  DirectMatmul() = default;
  absl::Status Fill();
  absl::Status ChooseAlgorithm();

  DirectProblem problem_;
  CudaStream stream_;
  CudaMemory a_, b_, bias_, out_, workspace_;
  cublasLtHandle_t handle_ = nullptr;
  cublasLtMatmulDescOpaque_t matmul_ = {};
  cublasLtMatrixLayoutOpaque_t left_ = {}, right_ = {}, result_ = {};
  cublasLtMatmulAlgo_t algorithm_ = {};
  size_t workspace_bytes_ = 0;
};

}  // namespace tensord::gpu
