// The precision of floating dtypes.
#pragma once

#include "tensord/common/dtype.h"

namespace tensord::server {

// Returns half a unit in the last place, relative to the value. For other dtypes, returns 0.
inline double RoundingOf(DType dtype) {
  switch (dtype) {
    case DType::kFloat16:
      return 0x1p-11;
    case DType::kBFloat16:
      return 0x1p-8;
    case DType::kFloat32:
      return 0x1p-24;
    case DType::kFloat64:
      return 0x1p-53;
    default:
      return 0;
  }
}

}  // namespace tensord::server
