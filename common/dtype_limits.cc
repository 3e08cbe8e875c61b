#include "tensord/common/dtype_limits.h"

#include <limits>

namespace tensord {

IntegerRange RangeOf(DType dtype) {
  switch (dtype) {
    case DType::kUInt8:
      return {0, std::numeric_limits<uint8_t>::max()};
    case DType::kInt8:
      return {std::numeric_limits<int8_t>::min(), std::numeric_limits<int8_t>::max()};
    case DType::kInt32:
      return {std::numeric_limits<int32_t>::min(), std::numeric_limits<int32_t>::max()};
    default:
      return {std::numeric_limits<int64_t>::min(), std::numeric_limits<int64_t>::max()};
  }
}

double MaxFinite(DType dtype) {
  switch (dtype) {
    case DType::kFloat16:
      return 65504.0;
    case DType::kBFloat16:
      return 0x1.fep127;
    case DType::kFloat32:
      return std::numeric_limits<float>::max();
    default:
      return std::numeric_limits<double>::max();
  }
}

bool FitsInteger(DType dtype, int64_t value) {
  const IntegerRange range = RangeOf(dtype);
  return value >= range.min && value <= range.max;
}

}  // namespace tensord
