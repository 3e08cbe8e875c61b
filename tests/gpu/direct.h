// Direct calls of cuBLASLt and the CUDA runtime that do the same work as the device layer. The
// benchmark compares the device layer with them. Each object has its own stream.
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

// Owns device memory or pinned host memory.
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

// Owns a non-blocking stream.
class CudaStream {
 public:
  static absl::StatusOr<CudaStream> Make();
  CudaStream() = default;
  CudaStream(CudaStream&& other) noexcept;
  CudaStream& operator=(CudaStream&& other) noexcept;
  ~CudaStream();
  cudaStream_t get() const { return stream_; }
  // Blocks until all work in the stream is done.
  absl::Status Wait() const;

 private:
  cudaStream_t stream_ = nullptr;
};

// Copies `bytes` with cudaMemcpyAsync, within the device or between the device and pinned host
// memory.
class DirectCopy {
 public:
  static absl::StatusOr<std::shared_ptr<DirectCopy>> Make(int64_t bytes, cudaMemcpyKind kind);
  // Copies `count` times, and blocks until the copies are done. Blocks after each copy to or from
  // the host.
  absl::Status Run(int count) const;

 private:
  DirectCopy() = default;

  CudaStream stream_;
  CudaMemory from_, to_;
  int64_t bytes_ = 0;
  cudaMemcpyKind kind_ = cudaMemcpyDeviceToDevice;
};

// a(m,k) · b(k,n), or x(m,k) · w(n,k)ᵀ + bias(n) if `linear` is set. All matrices are row-major and
// dense.
struct DirectProblem {
  DType dtype = DType::kFloat32;
  bool tf32 = false;
  int64_t m = 0, k = 0, n = 0;
  bool linear = false;
  bool gelu_tanh = false;  // applies gelu_tanh to the result; only with `linear`
};

// Computes a product with cublasLtMatmul.
class DirectMatmul {
 public:
  // Operand i has the test data of seed i + 1 (test_data.h).
  static absl::StatusOr<std::shared_ptr<DirectMatmul>> Make(const DirectProblem& problem);
  ~DirectMatmul();
  // Computes the product `count` times, and blocks until all are done.
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
