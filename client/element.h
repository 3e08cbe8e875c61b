// Which C++ type holds an element of which dtype on the host.
#pragma once

#include <bit>
#include <cstdint>

#include "tensord/common/dtype.h"
#include "tensord/common/dtype_of.h"
#include "tensord/common/float16.h"

namespace tensord {

static_assert(std::endian::native == std::endian::little, "elements travel little-endian");

<<<<<<< HEAD
=======
// The dtype whose elements T holds; kUnspecified if there is none.
template <typename T>
inline constexpr DType kDTypeOf = DType::kUnspecified;
template <>
inline constexpr DType kDTypeOf<bool> = DType::kBool;
template <>
inline constexpr DType kDTypeOf<uint8_t> = DType::kUInt8;
template <>
inline constexpr DType kDTypeOf<int8_t> = DType::kInt8;
template <>
inline constexpr DType kDTypeOf<int32_t> = DType::kInt32;
template <>
inline constexpr DType kDTypeOf<int64_t> = DType::kInt64;
template <>
inline constexpr DType kDTypeOf<Half> = DType::kFloat16;
template <>
inline constexpr DType kDTypeOf<BFloat16> = DType::kBFloat16;
template <>
inline constexpr DType kDTypeOf<float> = DType::kFloat32;
template <>
inline constexpr DType kDTypeOf<double> = DType::kFloat64;

>>>>>>> c
// bool, uint8_t, int8_t, int32_t, int64_t, Half, BFloat16, float or double.
template <typename T>
concept Element = kDTypeOf<T>
!= DType::kUnspecified;

}  // namespace tensord
