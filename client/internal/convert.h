// Elements from one type to another, on the host.
#pragma once

#include <cstdint>

#include "tensord/client/element.h"

namespace tensord::internal {

// `num_elements` of type `from` at `data`, which needn't be aligned, to `out`. As the op "cast" has
// it: to an integer truncated toward zero and clamped to its range, NaN as 0; to bool whatever
// isn't zero is true.
template <Element T>
void ConvertElements(DType from, const uint8_t* data, int64_t num_elements, T* out);

}  // namespace tensord::internal
