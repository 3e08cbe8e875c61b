// Elements in a GPU's memory, for kernels compiled by nvcc and for those compiled at run time,
// which see this file and what it includes as they are.
#pragma once

#include "tensord/server/device/elementwise_math.h"

namespace tensord::server::cuda {

// Elements that are loaded and stored by one instruction.
template <typename T, int kWidth>
struct alignas(sizeof(T) * kWidth) Pack {
  T value[kWidth];
};

// Widen() and Narrow() of elementwise_math.h with the GPU's own conversions, which give the same
// values (a NaN may come out with other bits). A host compiler, which knows no PTX, uses Widen()
// and Narrow() themselves.
#ifdef __CUDACC__
template <typename Storage>
__device__ inline MathOf<Storage> Load(Storage value) {
  if constexpr (std::is_same_v<Storage, Half>) {
    float result;
    asm("cvt.f32.f16 %0, %1;" : "=f"(result) : "h"(value.bits));
    return result;
  } else {
    return Widen(value);
  }
}

template <typename Storage>
__device__ inline Storage Store(MathOf<Storage> value) {
  if constexpr (std::is_same_v<Storage, Half>) {
    Half result;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(result.bits) : "f"(value));
    return result;
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
  } else if constexpr (std::is_same_v<Storage, BFloat16>) {
    BFloat16 result;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(result.bits) : "f"(value));
    return result;
#endif
  } else {
    return Narrow<Storage>(value);
  }
}
#else
template <typename Storage>
inline MathOf<Storage> Load(Storage value) {
  return Widen(value);
}

template <typename Storage>
inline Storage Store(MathOf<Storage> value) {
  return Narrow<Storage>(value);
}
#endif

}  // namespace tensord::server::cuda
