// Finds launchers, which are compiled for each dtype, by a dtype that is known at run time.
//
// nvcc compiles the files in this folder. They don't include most of the project's headers, because
// each would cost nvcc seconds. So they identify a dtype by its number.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "tensord/common/ops/elementwise_list.h"
#include "tensord/server/device/elementwise_math.h"

namespace tensord::server::cuda {

// The numbers of DType (common/dtype.h); kernel_table.cc asserts that they agree.
inline constexpr int kDTypeCount = 16;
template <typename Storage>
inline constexpr int kDTypeNumber = 0;
template <>
inline constexpr int kDTypeNumber<Bool> = 1;
template <>
inline constexpr int kDTypeNumber<uint8_t> = 2;
template <>
inline constexpr int kDTypeNumber<int8_t> = 3;
template <>
inline constexpr int kDTypeNumber<int32_t> = 4;
template <>
inline constexpr int kDTypeNumber<int64_t> = 5;
template <>
inline constexpr int kDTypeNumber<Half> = 6;
template <>
inline constexpr int kDTypeNumber<BFloat16> = 7;
template <>
inline constexpr int kDTypeNumber<float> = 8;
template <>
inline constexpr int kDTypeNumber<double> = 9;
template <>
inline constexpr int kDTypeNumber<int16_t> = 10;
template <>
inline constexpr int kDTypeNumber<uint16_t> = 11;
template <>
inline constexpr int kDTypeNumber<uint32_t> = 12;
template <>
inline constexpr int kDTypeNumber<uint64_t> = 13;
// 14 and 15 are complex. Only kernels that move elements take them, by their size.

// Has a launcher for each dtype, or null if there is none.
template <typename Launcher>
struct ByDType {
  Launcher launchers[kDTypeCount] = {};

  constexpr Launcher operator[](int dtype_number) const { return launchers[dtype_number]; }
};

template <typename... Storage>
struct Types {};
using FloatingTypes = Types<Half, BFloat16, float, double>;
using IntegerTypes =
    Types<uint8_t, int8_t, uint16_t, int16_t, uint32_t, int32_t, uint64_t, int64_t>;
using BitTypes =
    Types<Bool, uint8_t, int8_t, uint16_t, int16_t, uint32_t, int32_t, uint64_t, int64_t>;
using NumericTypes = Types<uint8_t, int8_t, uint16_t, int16_t, uint32_t, int32_t, uint64_t, int64_t,
                           Half, BFloat16, float, double>;
using AllTypes = Types<Bool, uint8_t, int8_t, uint16_t, int16_t, uint32_t, int32_t, uint64_t,
                       int64_t, Half, BFloat16, float, double>;

// Returns the storage types that a function of the list of elementwise ops takes.
template <ElementwiseTyping typing>
constexpr auto TypesOf() {
  if constexpr (typing == ElementwiseTyping::kAny) {
    return AllTypes();
  } else if constexpr (typing == ElementwiseTyping::kNumber) {
    return NumericTypes();
  } else if constexpr (typing == ElementwiseTyping::kBits) {
    return BitTypes();
  } else if constexpr (typing == ElementwiseTyping::kInteger) {
    return IntegerTypes();
  } else {
    return FloatingTypes();
  }
}

// Returns a table with `Family::Launch<Storage>` for each type of the list.
template <typename Launcher, typename Family, typename... Storage>
constexpr ByDType<Launcher> LaunchersFor(Types<Storage...>) {
  ByDType<Launcher> table;
  ((table.launchers[kDTypeNumber<Storage>] = &Family::template Launch<Storage>), ...);
  return table;
}

}  // namespace tensord::server::cuda
