// Parameters of the random ops, for the kernels of all backends (random_math.h).
#pragma once

#include <cstdint>

namespace tensord::server {

// A sequence of random numbers. Different streams of a seed are independent.
struct RandomStream {
  uint64_t seed = 0;
  uint64_t stream = 0;
};

// The integers from `low` on, `count` of them. Arithmetic is that of unsigned integers, so a range
// may have more than 2^63 integers.
struct RandintRange {
  uint64_t low = 0;
  uint64_t count = 1;
};

// Elements whose number u in [0, 1) is at least p are kept. u has 24 bits, as that of a float32
// element of the uniform distribution.
struct DropoutRule {
  uint32_t first_kept = 0;  // the smallest kept u, times 2^24; if it is 2^24, no element is kept
  double keep = 1;          // 1 - p; kept elements are divided by it
};

}  // namespace tensord::server
