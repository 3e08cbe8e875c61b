#include "tensord/common/dtype_limits.h"

#include <cmath>
#include <limits>

namespace tensord {
namespace {

template <typename T>
constexpr IntegerRange RangeOf() {
  return {static_cast<int64_t>(std::numeric_limits<T>::min()), std::numeric_limits<T>::max()};
}

}  // namespace

IntegerRange RangeOf(DType dtype) {
  switch (dtype) {
    case DType::kUInt8:
      return RangeOf<uint8_t>();
    case DType::kInt8:
      return RangeOf<int8_t>();
    case DType::kInt16:
      return RangeOf<int16_t>();
    case DType::kUInt16:
      return RangeOf<uint16_t>();
    case DType::kInt32:
      return RangeOf<int32_t>();
    case DType::kUInt32:
      return RangeOf<uint32_t>();
    case DType::kUInt64:
      return RangeOf<uint64_t>();
    default:
      return RangeOf<int64_t>();
  }
}

double MaxFinite(DType dtype) {
  switch (RealDTypeOf(dtype)) {
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

bool FitsFloating(DType dtype, double value) {
  const double size = std::abs(value);
  if (size <= MaxFinite(dtype) || !std::isfinite(value)) return true;
  switch (RealDTypeOf(dtype)) {
    // These values are rounded to float32 first.
    case DType::kFloat16:
      return size < 65520 && static_cast<float>(size) < 65520;
    case DType::kBFloat16:
      return size < 0x1.ffp127 && static_cast<float>(size) < 0x1.ffp127f;
    case DType::kFloat32:
      return size < 0x1.ffffffp127;
    default:
      return false;
  }
}

bool FitsInteger(DType dtype, int64_t value) {
  const IntegerRange range = RangeOf(dtype);
  return value >= range.min && (value < 0 || static_cast<uint64_t>(value) <= range.max);
}

}  // namespace tensord
