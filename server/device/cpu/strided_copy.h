// Copies of strided views of a tensor into dense memory.
#pragma once

#include <cstdint>

#include "tensord/common/shape.h"
#include "tensord/server/device/cpu/kernel.h"

namespace tensord::server::cpu {

// Dense memory read with any strides: element (i, j, …) is at i strides[0] + j strides[1] + …,
// counted in elements. Stride 0 repeats.
struct StridedSource {
  const void* data = nullptr;
  Dims sizes;
  Dims strides;
};

// dst = the view in row-major order, by the whole team. Rows that are contiguous in both are copied
// as memory; where the source runs along another axis than the result, tiles are transposed.
void StridedCopy(const Context& ctx, StridedSource source, int64_t element_bytes, void* dst);

// dst[0, n) = the element at `value`, by the whole team.
void Fill(const Context& ctx, const void* value, int64_t element_bytes, void* dst, int64_t n);

// dst[0, bytes) = src[0, bytes), by the whole team.
void Copy(const Context& ctx, const void* src, void* dst, int64_t bytes);

}  // namespace tensord::server::cpu
