// What every kernel file needs: grid sizes, 16-byte packs, and 16-bit floats to and from float.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "tensord/server/device/elementwise_math.h"

namespace tensord::server::cuda {

inline constexpr int kThreadsLog2 = 8;
inline constexpr int kThreads = 1 << kThreadsLog2;  // of every one-dimensional block
inline constexpr int64_t kMaxGridX = 0x7fffffff;

// Blocks for one thread per item; kernels loop with the grid's size as step, so fewer do as well.
inline unsigned GridSize(int64_t items) {
  constexpr int64_t kMaxBlocks = 1 << 20;
  return static_cast<unsigned>(
      std::clamp<int64_t>((items + kThreads - 1) / kThreads, 1, kMaxBlocks));
}

__device__ inline int64_t FirstIndex() {
  return static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}
__device__ inline int64_t IndexStep() { return static_cast<int64_t>(gridDim.x) * blockDim.x; }

// Elements that are loaded and stored by one instruction.
template <typename T, int kWidth>
struct alignas(sizeof(T) * kWidth) Pack {
  T value[kWidth];
};
// The width at which the largest of the types fills 16 bytes.
template <typename... T>
inline constexpr int kPackWidth = 16 / std::max({sizeof(T)...});

template <typename... T>
bool AlignedForPacks(const T*... pointer) {
  return ((reinterpret_cast<uintptr_t>(pointer) % 16 == 0) && ...);
}

// Widen() and Narrow() of elementwise_math.h with the GPU's own conversions, which give the same
// values (a NaN may come out with other bits).
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

}  // namespace tensord::server::cuda
