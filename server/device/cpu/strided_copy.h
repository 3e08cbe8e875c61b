// Copies of strided views of a tensor into dense memory.
#pragma once

#include <cstdint>

#include "tensord/common/shape.h"
#include "tensord/server/device/cpu/kernel.h"

namespace tensord::server::cpu {

// A view of dense memory with any strides. Element (i, j, …) is at i strides[0] + j strides[1] + …,
// in elements. Stride 0 repeats an element.
struct StridedSource {
  const void* data = nullptr;
  Dims sizes;
  Dims strides;
};

// Copies the view to `dst` in row-major order, on the whole team. Copies rows that are contiguous
// in the view by memcpy. If the view is contiguous along an axis other than the last, transposes
// tiles.
void StridedCopy(const Context& ctx, StridedSource source, int64_t element_bytes, void* dst);

// Sets dst[0, n) to the element at `value`, on the whole team.
void Fill(const Context& ctx, const void* value, int64_t element_bytes, void* dst, int64_t n);

// dst[0, bytes) = src[0, bytes), on the whole team.
void Copy(const Context& ctx, const void* src, void* dst, int64_t bytes);

}  // namespace tensord::server::cpu
