// Conversion of elements on the host.
#pragma once

#include <cstdint>

#include "tensord/client/element.h"

namespace tensord::internal {

// Converts `num_elements` elements of type `from` at `data`, which needn't be aligned, to `out`, as
// the op "cast" does. A conversion to an integer truncates toward zero and clamps to the range; NaN
// gives 0. A conversion to bool gives true unless the value is zero. Complex elements convert only
// to their own type: if `from` or T is complex and they differ, writes nothing.
template <Element T>
void ConvertElements(DType from, const uint8_t* data, int64_t num_elements, T* out);

}  // namespace tensord::internal
