// How much work a tour gives to devices of any speed. Pure functions.
#pragma once

#include <cstdint>

#include "absl/time/time.h"

namespace tensord::tour {

// The side of square float32 matrices whose product takes about `wanted` at that speed: a power of
// two from 512 to 8192, and three of them within a quarter of `limit_bytes` as far as 512 allows.
int64_t MatmulSide(double flops_per_second, absl::Duration wanted, int64_t limit_bytes);

// How often something that takes `once` is to be done to take `wanted`: 1 to `most`.
int Repetitions(absl::Duration once, absl::Duration wanted, int most);

// Floating-point operations in the product of two square matrices.
inline double MatmulFlops(int64_t side) {
  return 2.0 * static_cast<double>(side) * static_cast<double>(side) * static_cast<double>(side);
}

}  // namespace tensord::tour
