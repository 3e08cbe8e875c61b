// Conversion of elements on the host.
#pragma once

#include <cstdint>

#include "tensord/client/element.h"

namespace tensord::internal {

// Converts `num_elements` of type `from` at `data`, which needn't be aligned, to `out`, as the op
// "cast" does: to an integer, truncates toward zero and clamps to its range, NaN to 0; to bool,
// true unless zero.
template <Element T>
void ConvertElements(DType from, const uint8_t* data, int64_t num_elements, T* out);

}  // namespace tensord::internal
