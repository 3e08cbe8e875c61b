// Tables of functions that are compiled for each storage type (../elementwise_math.h), by dtype.
#pragma once

#include <array>
#include <type_traits>

#include "tensord/common/dtype_of.h"
#include "tensord/server/device/cpu/isa/loops.h"
#include "tensord/server/device/elementwise_math.h"

namespace tensord::server::cpu {

template <typename... T>
struct StorageTypes {};
using NumericStorageTypes = StorageTypes<uint8_t, int8_t, int16_t, uint16_t, int32_t, uint32_t,
                                         int64_t, uint64_t, Half, BFloat16, float, double>;
using AllStorageTypes = StorageTypes<Bool, uint8_t, int8_t, int16_t, uint16_t, int32_t, uint32_t,
                                     int64_t, uint64_t, Half, BFloat16, float, double>;

template <typename T>
inline constexpr DType kDTypeOfStorage = std::is_same_v<T, Bool> ? DType::kBool : kDTypeOf<T>;

template <typename Function>
using FunctionByDType = std::array<Function, kDTypeCount>;

// Returns the table of Family<T>::Run, for each type T of the list. Other entries are null.
template <typename Function, template <typename> class Family, typename... T>
constexpr FunctionByDType<Function> RunByDType(StorageTypes<T...>) {
  FunctionByDType<Function> table{};
  ((table[Index(kDTypeOfStorage<T>)] = &Family<T>::Run), ...);
  return table;
}

}  // namespace tensord::server::cpu
