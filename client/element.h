// The C++ types that hold elements on the host.
#pragma once

#include <bit>
#include <cstdint>

#include "tensord/common/dtype.h"
#include "tensord/common/dtype_of.h"
#include "tensord/common/float16.h"

namespace tensord {

static_assert(std::endian::native == std::endian::little, "elements are sent as little-endian");

// bool, uint8_t, int8_t, int32_t, int64_t, Half, BFloat16, float or double.
template <typename T>
concept Element = (kDTypeOf<T> != DType::kUnspecified);

}  // namespace tensord
