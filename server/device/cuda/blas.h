// Products of floating-point matrices by cuBLASLt.
#pragma once

#include <cublasLt.h>
#include <cuda_runtime_api.h>

#include <cstdint>
#include <list>
#include <memory>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tensord/common/dtype.h"
#include "tensord/server/device/cuda/cuda_handles.h"

namespace tensord::server::cuda {

// The function that cuBLASLt applies to a product before it stores the product.
enum class Epilogue : uint8_t { kNone, kRelu, kGeluTanh };

// For each of `batch` items: (m, k) · (k, n) -> (m, n). All matrices are row-major, and dense unless
// a row stride is given. No size is 0. The operands have the floating dtype `dtype`. float16 and
// bfloat16 are accumulated in float32.
struct MatmulProblem {
  DType dtype = DType::kUnspecified;
  // The result's dtype is float32 instead of `dtype`. Requires float16 or bfloat16 operands.
  bool float32_out = false;
  bool allow_tf32 = false;
  bool transpose_a = false;  // a is stored (k, m)
  bool transpose_b = false;  // b is stored (n, k)
  int64_t m = 0, n = 0, k = 0;
  int64_t batch = 1;                   // at most kMaxBatch
  int64_t a_stride = 0, b_stride = 0;  // elements from one item to the next; 0: all items share one
  int64_t out_stride = 0;              // the same of the result; 0: its items lie one after another
  // Elements from one row to the next, of the matrix as it is stored; 0: the matrix is dense.
  int64_t a_row_stride = 0, out_row_stride = 0;
  bool accumulates = false;  // adds the product to the result. Not with an epilogue
  bool bias = false;         // (n) is added to every row
  Epilogue epilogue = Epilogue::kNone;

  friend bool operator==(const MatmulProblem&, const MatmulProblem&) = default;
  template <typename H>
  friend H AbslHashValue(H h, const MatmulProblem& p) {
    return H::combine(std::move(h), p.dtype, p.float32_out, p.allow_tf32, p.transpose_a,
                      p.transpose_b, p.m, p.n, p.k, p.batch, p.a_stride, p.b_stride, p.out_stride,
                      p.a_row_stride, p.out_row_stride, p.accumulates, p.bias, p.epilogue);
  }
};

// Not thread-safe: only the thread that launches a device's kernels uses it. All products share a
// workspace, so they must run one after another.
class Blas {
 public:
  static constexpr int64_t kMaxBatch = 63 * 1024;  // the library's kernels refuse 2^16 and more

  // Allocates the workspace on the current device. Products run on `stream`.
  static absl::StatusOr<std::unique_ptr<Blas>> Create(cudaStream_t stream);
  ~Blas();

  // If cuBLASLt can't be loaded, returns FAILED_PRECONDITION with the reason.
  static absl::Status CheckLibrary();

  // Makes later products run on `stream`.
  void SetStream(cudaStream_t stream) { stream_ = stream; }

  // Enqueues the product. `bias` is null if the problem has none. If cuBLASLt can't be loaded,
  // returns the error of CheckLibrary(). If cuBLASLt has no kernel for the problem, enqueues
  // nothing and returns UNIMPLEMENTED.
  absl::Status Multiply(const MatmulProblem& problem, const void* a, const void* b,
                        const void* bias, void* out);

 private:
  // The alignment of the addresses in bytes. A kernel may rely on it.
  struct Alignment {
    uint32_t a = 0, b = 0, out = 0, bias = 0;
    friend bool operator==(const Alignment&, const Alignment&) = default;
  };
  struct Key {
    MatmulProblem problem;
    Alignment alignment;
    friend bool operator==(const Key&, const Key&) = default;
    template <typename H>
    friend H AbslHashValue(H h, const Key& key) {
      return H::combine(std::move(h), key.problem, key.alignment.a, key.alignment.b,
                        key.alignment.out, key.alignment.bias);
    }
  };
  // The library's choice of a kernel for a problem. It is kept, because the choice takes far longer
  // than a small product.
  struct Plan {
    Key key;
    absl::Status status;  // why there is no kernel; OK if there is one
    cublasLtMatmulDescOpaque_t matmul;
    cublasLtMatrixLayoutOpaque_t left, right, out;  // cuBLASLt's operands: see blas.cc
    cublasLtMatmulAlgo_t algorithm;
    size_t workspace_bytes = 0;
  };
  using Plans = std::list<Plan>;

  Blas() = default;

  // Returns the kept plan, or makes one. `bias` is used only for the choice of an algorithm. Each
  // product sets its own bias. A failure other than UNIMPLEMENTED isn't kept, because it may pass.
  absl::StatusOr<Plan*> PlanFor(const Key& key, const void* bias);
  absl::Status FillPlan(Plan& plan, const void* bias) const;
  absl::Status ChooseAlgorithm(Plan& plan) const;

  cublasLtHandle_t handle_ = nullptr;
  cudaStream_t stream_ = nullptr;
  DeviceMemory workspace_;
  Plans plans_;  // the most recently used first
  absl::flat_hash_map<Key, Plans::iterator> plan_by_key_;
};

// Does the same as blas.Multiply() for any number of items and no bias. Multiplies at most
// Blas::kMaxBatch items in one call. If the library doesn't support a batch of this kind, multiplies
// the items one by one. If the op must stop, returns CANCELLED.
absl::Status MultiplyItems(const MatmulProblem& problem, const void* a, const void* b, void* out,
                           Blas& blas);

}  // namespace tensord::server::cuda
