// Random test data, and a checksum with which two programs compare results without exchanging them.
// torch_peer.py makes the same bits as this file.
//
// Element i of seed s is ValueAt(i, s) as float32, rounded to the tensor's dtype; bool elements are
// bit 8 of HashAt(i, s).
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/types/span.h"
#include "tensord/common/dtype.h"

namespace tensord::gpu {

// Returns a hash of 32 bits.
constexpr uint32_t HashAt(int64_t index, uint32_t seed) {
  uint32_t x = static_cast<uint32_t>(index) + seed * 0x9e3779b9u;
  x = (x ^ (x >> 16)) * 0x7feb352du;
  x = (x ^ (x >> 15)) * 0x846ca68bu;
  return x ^ (x >> 16);
}

// Returns a multiple of 2^-23 in [-1, 1).
constexpr float ValueAt(int64_t index, uint32_t seed) {
  return static_cast<float>(HashAt(index, seed) >> 8) * 0x1p-23f - 1;
}

// Returns `elements` elements. `dtype` is bool, float16, bfloat16 or float32.
std::vector<uint8_t> MakeData(DType dtype, int64_t elements, uint32_t seed);

// `weighted` is the sum of y[i] * ValueAt(i, kWeightSeed), so it also detects elements in
// the wrong place. `norm` is the square root of the sum of y[i]². Both are computed in double
// precision.
struct Checksum {
  static constexpr uint32_t kWeightSeed = 0xc0ffee;
  double weighted = 0;
  double norm = 0;
};
Checksum ChecksumOf(DType dtype, absl::Span<const uint8_t> bytes);

// Returns whether two results differ only by rounding: by at most about `tolerance`, relative to
// the root mean square of their elements. Returns false if a result has a NaN or an infinity.
bool Agree(const Checksum& a, const Checksum& b, double tolerance);

// Splits [0, count) into parts, calls `body(begin, end)` for each part on several threads, and
// waits for all. Doesn't split small counts.
void ParallelFor(int64_t count, const std::function<void(int64_t, int64_t)>& body);

}  // namespace tensord::gpu
