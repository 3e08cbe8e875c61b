// The C++ types that hold elements on the host.
#pragma once

#include <bit>
#include <complex>
#include <cstdint>

#include "tensord/common/dtype.h"
#include "tensord/common/dtype_of.h"
#include "tensord/common/float16.h"

namespace tensord {

static_assert(std::endian::native == std::endian::little, "elements are sent as little-endian");

template <>
inline constexpr DType kDTypeOf<std::complex<float>> = DType::kComplex64;
template <>
inline constexpr DType kDTypeOf<std::complex<double>> = DType::kComplex128;

// bool, an integer of 8, 16, 32 or 64 bits, Half, BFloat16, float, double, std::complex<float> or
// std::complex<double>.
template <typename T>
concept Element = (kDTypeOf<T> != DType::kUnspecified);

}  // namespace tensord
