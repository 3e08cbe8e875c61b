// Matrix products by oneDNN. Its primitives are expensive to make, so they are kept.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tensord/common/dtype.h"
#include "tensord/common/ops/elementwise.h"
#include "tensord/server/device/cpu/packed_layout.h"

namespace tensord::server::cpu {

// Returns whether oneDNN can apply the function to the result of a product. nullopt means no
// function.
bool OneDnnHas(std::optional<UnaryFunction> activation);

// (M,K)·(K,N) -> (M,N), dense and row-major. A transposed operand is stored as (K,M) or (N,K).
struct OneDnnMatmul {
  DType dtype =
      DType::kUnspecified;      // float32 or bfloat16 (accumulated in float32), of all operands
  int64_t m = 0, n = 0, k = 0;  // all positive
  bool transpose_a = false, transpose_b = false;
  bool has_bias = false;                    // (N), added to each row before the activation
  std::optional<UnaryFunction> activation;  // OneDnnHas() must be true for it
  int threads = 1;                          // the number of threads that share the work
  bool packed_b = false;                    // b is in the library's fastest layout (OneDnn::Pack)

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

// A product with its primitive.
class OneDnnProduct;

class OneDnn {
 public:
  // The maximum of m with packed_b.
  static constexpr int64_t kMaxPackedRows = 512;
  OneDnn();
  ~OneDnn();

  // Thread-safe. Returns a kept product, or makes one. If the library has no fast code for it on
  // this processor, returns UNIMPLEMENTED; the caller then computes in float32. If packed_b is set
  // and no other layout of b is faster, returns UNIMPLEMENTED, too. If the library fails, returns
  // RESOURCE_EXHAUSTED or INTERNAL.
  absl::StatusOr<std::shared_ptr<OneDnnProduct>> Find(const OneDnnMatmul& matmul);

  // Returns the bytes of memory that Run() needs, aligned to 64 bytes, for intermediate values.
  static int64_t ScratchBytes(const OneDnnProduct& product);

  // c = activation(a·b + bias). Computes large products in tiles. If the op must stop
  // (stop_token.h), returns CANCELLED; c is then incomplete. `scratch` has ScratchBytes(product);
  // it may be null if these are 0. One thread at a time may run products other than clones. If a
  // product has several threads, the calling thread must be the leader of the device's team.
  absl::Status Run(OneDnnProduct& product, const void* a, const void* b, const void* bias, void* c,
                   void* scratch);

  // Returns the estimated host memory of a product, most of which is generated code.
  static int64_t HostBytes(const OneDnnProduct& product);

  // Returns a copy of a product of one thread. One thread at a time may run the clone, also while
  // other threads run the original and other clones. Thread-safe.
  absl::StatusOr<std::shared_ptr<OneDnnProduct>> Clone(const OneDnnProduct& product);

  // The next functions are for products with packed_b.
  // Returns the layout of b that the product reads. The object must not outlive this one.
  std::shared_ptr<const PackedLayout> LayoutOf(std::shared_ptr<OneDnnProduct> product);
  // Packs b. The same rules for threads apply as for Run(). If the op must stop, returns CANCELLED.
  absl::Status Pack(OneDnnProduct& product, const void* b, void* packed);

 private:
  // Of a primitive. oneDNN 2.6 takes 50 to 200 KiB. A product has one to four primitives.
  static constexpr int64_t kPrimitiveBytes = 192 << 10;

  class Cache;

  const std::unique_ptr<Cache> cache_;
};

}  // namespace tensord::server::cpu
