// Computes the amount of work for a device's speed. Pure functions.
#pragma once

#include <cstdint>

#include "absl/time/time.h"

namespace tensord::tour {

// Returns the side of square float32 matrices whose product takes about `wanted` at that speed. It
// is a power of two from 512 to 8192. Three such matrices fit a quarter of `limit_bytes`, unless
// the side is 512.
int64_t MatmulSide(double flops_per_second, absl::Duration wanted, int64_t limit_bytes);

// Returns how many repetitions of work that takes `once` take `wanted`; from 1 to `max`.
int Repetitions(absl::Duration once, absl::Duration wanted, int max);

// Floating-point operations in the product of two square matrices.
inline double MatmulFlops(int64_t side) {
  return 2.0 * static_cast<double>(side) * static_cast<double>(side) * static_cast<double>(side);
}

}  // namespace tensord::tour
