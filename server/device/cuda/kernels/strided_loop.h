// A loop nest over tensors with strides. It is a kernel parameter, and computes the offset of each
// operand from an index.
#pragma once

#include <cstdint>

#include "tensord/common/float16.h"

namespace tensord::server::cuda {

inline constexpr int kMaxLoopRank = 32;

// Computes n / divisor (divisor >= 1) with a multiplication (Granlund and Montgomery, "Division by
// invariant integers using multiplication", 1994, section 4). If it is narrow, n and the divisor
// must be below 2^31, otherwise below 2^63. A GPU has no instruction for integer division: a 64-bit
// division is a function call that takes registers from its callers.
struct Divider {
  uint64_t magic = 1;
  uint32_t shift = 0;

  Divider() = default;
  Divider(int64_t divisor, bool narrow) {
    const auto d = static_cast<uint64_t>(divisor);
    while ((uint64_t{1} << shift) < d) ++shift;
    const uint64_t excess = (uint64_t{1} << shift) - d;
    magic =
        1 + (narrow ? (excess << 32) / d
                    : static_cast<uint64_t>((static_cast<unsigned __int128>(excess) << 64) / d));
  }

  TENSORD_HD uint32_t DivideNarrow(uint32_t n) const {
    const auto factor = static_cast<uint32_t>(magic);
#ifdef __CUDA_ARCH__
    return (__umulhi(n, factor) + n) >> shift;
#else
    return (static_cast<uint32_t>((uint64_t{n} * factor) >> 32) + n) >> shift;
#endif
  }

  TENSORD_HD uint64_t DivideWide(uint64_t n) const {
#ifdef __CUDA_ARCH__
    return (__umul64hi(n, magic) + n) >> shift;
#else
    return (static_cast<uint64_t>((static_cast<unsigned __int128>(n) * magic) >> 64) + n) >> shift;
#endif
  }
};

// The dimensions are ordered from the outermost to the innermost. There is at least one. Strides
// are in elements of each operand.
template <int kOperands>
struct StridedLoop {
  int64_t size = 0;     // the product of the extents
  int rank = 0;         // 1 .. kMaxLoopRank
  bool narrow = false;  // true if every index fits in 31 bits; then `divider` is narrow
  int64_t extent[kMaxLoopRank] = {};
  Divider divider[kMaxLoopRank];
  int64_t stride[kOperands][kMaxLoopRank] = {};

  // Requires 0 <= index < size. Sets `offset` to the operands' offsets. Returns the index within
  // the innermost axis.
  TENSORD_HD int64_t Offsets(int64_t index, int64_t (&offset)[kOperands]) const {
    int64_t column = index;
    for (int n = 0; n < kOperands; ++n) offset[n] = 0;
    for (int d = rank - 1; d > 0; --d) {
      const int64_t quotient =
          narrow ? int64_t{divider[d].DivideNarrow(static_cast<uint32_t>(index))}
                 : static_cast<int64_t>(divider[d].DivideWide(static_cast<uint64_t>(index)));
      const int64_t remainder = index - quotient * extent[d];
      for (int n = 0; n < kOperands; ++n) offset[n] += remainder * stride[n][d];
      if (d == rank - 1) column = remainder;
      index = quotient;
    }
    for (int n = 0; n < kOperands; ++n) offset[n] += index * stride[n][0];
    return column;
  }
};

// Returns the loop over `extent[0, rank)`. Drops axes of extent 1. Merges neighbouring axes if one
// stride per operand describes them.
template <int kOperands>
StridedLoop<kOperands> MakeStridedLoop(int rank, const int64_t* extent,
                                       const int64_t* const (&stride)[kOperands]) {
  StridedLoop<kOperands> loop;
  loop.size = 1;
  for (int d = 0; d < rank; ++d) {
    loop.size *= extent[d];
    if (extent[d] == 1) continue;
    const int last = loop.rank - 1;
    bool merges = last >= 0;
    for (int n = 0; merges && n < kOperands; ++n) {
      merges = loop.stride[n][last] == extent[d] * stride[n][d];
    }
    const int at = merges ? last : loop.rank++;
    loop.extent[at] = merges ? loop.extent[at] * extent[d] : extent[d];
    for (int n = 0; n < kOperands; ++n) loop.stride[n][at] = stride[n][d];
  }
  if (loop.rank == 0) {
    loop.rank = 1;
    loop.extent[0] = 1;
  }
  loop.narrow = loop.size < (int64_t{1} << 31);
  for (int d = 0; d < loop.rank && loop.size > 0; ++d) {
    loop.divider[d] = Divider(loop.extent[d], loop.narrow);
  }
  return loop;
}

}  // namespace tensord::server::cuda
