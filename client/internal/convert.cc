#include "tensord/client/internal/convert.h"

#include <cstring>
#include <limits>
#include <type_traits>

#include "tensord/client/internal/element_types.h"

namespace tensord::internal {
namespace {

template <typename T>
constexpr bool kIsFloating =
    std::is_floating_point_v<T> || std::is_same_v<T, Half> || std::is_same_v<T, BFloat16>;

// Returns the value in a type that has comparison and conversion.
template <typename T>
auto Widen(T value) {
  if constexpr (std::is_same_v<T, Half> || std::is_same_v<T, BFloat16>) {
    return static_cast<float>(value);
  } else {
    return value;
  }
}

template <typename To>
To FloatToInteger(double value) {
  constexpr auto kMin = static_cast<double>(std::numeric_limits<To>::min());
  constexpr auto kMax = static_cast<double>(std::numeric_limits<To>::max());  // 64 bits: rounded up
  if (!(value == value)) return 0;
  if (value <= kMin) return std::numeric_limits<To>::min();
  if (value >= kMax) return std::numeric_limits<To>::max();
  return static_cast<To>(value);
}

template <typename To, typename From>
To ConvertOne(From from) {
  if constexpr (std::is_same_v<To, From>) {
    return from;
  } else {
    const auto value = Widen(from);
    if constexpr (std::is_same_v<To, bool>) {
      return value != 0;
    } else if constexpr (std::is_same_v<To, Half> || std::is_same_v<To, BFloat16>) {
      return To(static_cast<float>(value));
    } else if constexpr (std::is_integral_v<To> && kIsFloating<From>) {
      return FloatToInteger<To>(static_cast<double>(value));
    } else {
      return static_cast<To>(value);
    }
  }
}

template <typename To, typename From>
void ConvertFrom(const uint8_t* data, int64_t num_elements, To* out) {
  for (int64_t i = 0; i < num_elements; ++i) {
    if constexpr (std::is_same_v<From, bool>) {
      out[i] = ConvertOne<To>(data[i] != 0);
    } else {
      From value;
      std::memcpy(&value, data + i * sizeof(From), sizeof(From));
      out[i] = ConvertOne<To>(value);
    }
  }
}

template <typename T>
void ConvertReal(DType from, const uint8_t* data, int64_t num_elements, T* out) {
  switch (from) {
    case DType::kBool:
      return ConvertFrom<T, bool>(data, num_elements, out);
    case DType::kUInt8:
      return ConvertFrom<T, uint8_t>(data, num_elements, out);
    case DType::kInt8:
      return ConvertFrom<T, int8_t>(data, num_elements, out);
    case DType::kInt32:
      return ConvertFrom<T, int32_t>(data, num_elements, out);
    case DType::kInt64:
      return ConvertFrom<T, int64_t>(data, num_elements, out);
    case DType::kFloat16:
      return ConvertFrom<T, Half>(data, num_elements, out);
    case DType::kBFloat16:
      return ConvertFrom<T, BFloat16>(data, num_elements, out);
    case DType::kFloat32:
      return ConvertFrom<T, float>(data, num_elements, out);
    case DType::kFloat64:
      return ConvertFrom<T, double>(data, num_elements, out);
    case DType::kInt16:
      return ConvertFrom<T, int16_t>(data, num_elements, out);
    case DType::kUInt16:
      return ConvertFrom<T, uint16_t>(data, num_elements, out);
    case DType::kUInt32:
      return ConvertFrom<T, uint32_t>(data, num_elements, out);
    case DType::kUInt64:
      return ConvertFrom<T, uint64_t>(data, num_elements, out);
    case DType::kComplex64:
    case DType::kComplex128:
    case DType::kUnspecified:
      return;
  }
}

}  // namespace

template <Element T>
void ConvertElements(DType from, const uint8_t* data, int64_t num_elements, T* out) {
  if constexpr (IsComplex(kDTypeOf<T>)) {
    if (from == kDTypeOf<T>) std::memcpy(out, data, num_elements * sizeof(T));
  } else {
    ConvertReal(from, data, num_elements, out);
  }
}

#define TENSORD_INSTANTIATE(T) template void ConvertElements<T>(DType, const uint8_t*, int64_t, T*);
TENSORD_ELEMENT_TYPES(TENSORD_INSTANTIATE)
#undef TENSORD_INSTANTIATE

}  // namespace tensord::internal
