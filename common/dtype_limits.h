// The values that dtypes can hold.
#pragma once

#include <cstdint>

#include "tensord/common/dtype.h"

namespace tensord {

// The values of an integer dtype, both ends included.
struct IntegerRange {
  int64_t min;
  uint64_t max;
};
IntegerRange RangeOf(DType dtype);
bool FitsInteger(DType dtype, int64_t value);

// Returns the largest finite value of a floating dtype, or of a part of a complex dtype.
double MaxFinite(DType dtype);
// Returns whether the value is infinite or NaN, or is still finite if it is rounded to a floating
// dtype, or to a part of a complex dtype. A value may exceed MaxFinite() by less than half a unit
// in the last place.
bool FitsFloating(DType dtype, double value);

}  // namespace tensord
