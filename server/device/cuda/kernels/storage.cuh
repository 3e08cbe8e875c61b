// Elements in a GPU's memory. Kernels that nvcc compiles and kernels that are compiled at run time
// (nvrtc.h) both include this file.
#pragma once

#include "tensord/server/device/elementwise_math.h"

namespace tensord::server::cuda {

// Elements that one instruction loads or stores.
template <typename T, int kWidth>
struct alignas(sizeof(T) * kWidth) Pack {
  T value[kWidth];
};

// Load() and Store() are Widen() and Narrow() of elementwise_math.h with the GPU's conversions.
// These give the same values, but a NaN may have other bits. A host compiler can't compile PTX, so
// there they call Widen() and Narrow().
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

#ifdef __CUDACC__
#define TENSORD_DEVICE __device__
#else
#define TENSORD_DEVICE
#endif

// Returns F's result for operands as they are stored.
template <typename F, typename Out, typename... In>
TENSORD_DEVICE inline Out Apply(In... in) {
  if constexpr (kTakesStorage<F>) {
    return F()(in...);
  } else {
    return Store<Out>(F()(Load(in)...));
  }
}

#undef TENSORD_DEVICE

}  // namespace tensord::server::cuda
