// Matrix products by oneDNN, whose primitives are expensive to make and therefore kept.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tensord/common/dtype.h"
#include "tensord/common/ops/elementwise.h"
#include "tensord/server/device/cpu/memory_pool.h"

namespace tensord::server::cpu {

// Returns whether oneDNN can apply the function to the result of a product. nullopt: no function.
bool OneDnnHas(std::optional<UnaryFunction> activation);

// (M,K)·(K,N) -> (M,N), dense and row-major; a transposed operand is stored as (K,M) or (N,K).
struct OneDnnMatmul {
  DType dtype =
      DType::kUnspecified;      // float32 or bfloat16 (accumulated in float32), of all operands
  int64_t m = 0, n = 0, k = 0;  // all positive
  bool transpose_a = false, transpose_b = false;
  bool has_bias = false;                    // (N), added to each row before the activation
  std::optional<UnaryFunction> activation;  // one that OneDnnHas()
  int threads = 1;                          // that share the work
  bool packed_b = false;  // b is in the layout that suits the library best (OneDnn::Pack)

  friend bool operator==(const OneDnnMatmul& x, const OneDnnMatmul& y) {
    return x.dtype == y.dtype && x.m == y.m && x.n == y.n && x.k == y.k &&
           x.transpose_a == y.transpose_a && x.transpose_b == y.transpose_b &&
           x.has_bias == y.has_bias && x.activation == y.activation && x.threads == y.threads &&
           x.packed_b == y.packed_b;
  }
  template <typename H>
  friend H AbslHashValue(H h, const OneDnnMatmul& x) {
    return H::combine(std::move(h), x.dtype, x.m, x.n, x.k, x.transpose_a, x.transpose_b,
                      x.has_bias, x.activation, x.threads, x.packed_b);
  }
};

// A product that has been made ready.
class OneDnnProduct;

class OneDnn {
 public:
  // Intermediate values come from `pool`.
  explicit OneDnn(MemoryPool* pool);
  ~OneDnn();

  // Thread-safe. The product, from those last used or made anew. UNIMPLEMENTED where this processor
  // has no fast code for it (the caller computes in float32 then), or where no other layout of b
  // suits the library better. RESOURCE_EXHAUSTED or INTERNAL where the library fails.
  absl::StatusOr<std::shared_ptr<OneDnnProduct>> Find(const OneDnnMatmul& matmul);

  // c = activation(a·b + bias). One thread at a time (clones aside), which may be any if the
  // product's number of threads is one, and is the leader of the device's team otherwise.
  absl::Status Run(OneDnnProduct& product, const void* a, const void* b, const void* bias, void* c);

  // The same product of one thread, to be run by any one thread while others run the original.
  // Thread-safe.
  absl::StatusOr<std::shared_ptr<OneDnnProduct>> Clone(const OneDnnProduct& product);

  // Of a product with packed_b: the bytes of b as it reads it; whether it reads what was packed for
  // the other; and packing, under the same rules as Run().
  static int64_t PackedBytes(const OneDnnProduct& product);
  static bool ReadSameLayout(const OneDnnProduct& product, const OneDnnProduct& other);
  absl::Status Pack(OneDnnProduct& product, const void* b, void* packed);

 private:
  class Cache;

  MemoryPool* const pool_;
  const std::unique_ptr<Cache> cache_;
  Scratch scratch_;
  int64_t scratch_bytes_ = 0;
};

}  // namespace tensord::server::cpu
