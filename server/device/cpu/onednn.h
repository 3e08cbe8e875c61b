// Matrix products by oneDNN, whose primitives are expensive to make and therefore kept.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "tensord/common/dtype.h"

namespace tensord::server::cpu {

enum class Activation : uint8_t { kNone, kRelu, kGeluErf, kGeluTanh, kSilu, kSigmoid, kTanh };

// (M,K)·(K,N) -> (M,N), dense and row-major; a transposed operand is stored as (K,M) or (N,K).
struct OneDnnMatmul {
  DType dtype =
      DType::kUnspecified;      // float32 or bfloat16 (accumulated in float32), of all operands
  int64_t m = 0, n = 0, k = 0;  // all positive
  bool transpose_a = false, transpose_b = false;
  bool has_bias = false;  // (N), added to each row before the activation
  Activation activation = Activation::kNone;

  friend bool operator==(const OneDnnMatmul& x, const OneDnnMatmul& y) {
    return x.dtype == y.dtype && x.m == y.m && x.n == y.n && x.k == y.k &&
           x.transpose_a == y.transpose_a && x.transpose_b == y.transpose_b &&
           x.has_bias == y.has_bias && x.activation == y.activation;
  }
  template <typename H>
  friend H AbslHashValue(H h, const OneDnnMatmul& x) {
    return H::combine(std::move(h), x.dtype, x.m, x.n, x.k, x.transpose_a, x.transpose_b,
                      x.has_bias, x.activation);
  }
};

// Used by one thread at a time, that of a device's executor; runs on that thread's OpenMP team.
class OneDnn {
 public:
  OneDnn();
  ~OneDnn();

  // c = activation(a·b + bias). UNIMPLEMENTED where this processor has no fast code for the dtype:
  // the caller computes in float32 then. RESOURCE_EXHAUSTED or INTERNAL where the library fails.
  absl::Status Run(const OneDnnMatmul& matmul, const void* a, const void* b, const void* bias,
                   void* c);

 private:
  class Cache;
  std::unique_ptr<Cache> cache_;
};

}  // namespace tensord::server::cpu
