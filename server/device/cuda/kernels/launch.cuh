// Launches, 16-byte packs, grid.h and storage.cuh, for all kernel files.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <tuple>
#include <utility>

#include "tensord/server/device/cuda/kernels/grid.h"
#include "tensord/server/device/cuda/kernels/storage.cuh"

namespace tensord::server::cuda {

inline constexpr int64_t kMaxGridX = 0x7fffffff;

// Enqueues a kernel that uses no dynamic shared memory. Returns errors of the launch, but not of
// the kernel's execution. If a host compiler compiles this file, the kernel runs on the CPU: the
// build then includes tests/cuda_emulation/launch.h first in each .cu file.
template <typename... Parameters, typename... Arguments>
cudaError_t LaunchKernel(void (*kernel)(Parameters...), dim3 grid, dim3 block, cudaStream_t stream,
                         Arguments&&... arguments) {
#ifdef __CUDACC__
  // kernel<<<…>>> makes more calls of the runtime, and needs a call of cudaGetLastError().
  std::tuple<Parameters...> values(std::forward<Arguments>(arguments)...);
  return std::apply(
      [&](auto&... value) {
        void* pointers[] = {static_cast<void*>(&value)..., nullptr};
        return cudaLaunchKernel(reinterpret_cast<const void*>(kernel), grid, block, pointers, 0,
                                stream);
      },
      values);
#else
  return cuda_emulation::Launch(kernel, grid, block, stream, std::forward<Arguments>(arguments)...);
#endif
}

__device__ inline int64_t FirstIndex() {
  return static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}
__device__ inline int64_t IndexStep() { return static_cast<int64_t>(gridDim.x) * blockDim.x; }

// The number of elements of a pack of which the largest of the types fills 16 bytes.
template <typename... T>
inline constexpr int kPackWidth = 16 / std::max({sizeof(T)...});

template <typename... T>
bool AlignedForPacks(const T*... pointer) {
  return ((reinterpret_cast<uintptr_t>(pointer) % 16 == 0) && ...);
}

// Stores 16 bytes with one instruction. In some loops, nvcc 13 would compile an assignment to two
// stores.
template <typename T, int kWidth>
__device__ inline void StorePack(T* out, const Pack<T, kWidth>& pack) {
  static_assert(sizeof(pack) == 16);
#ifdef __CUDACC__
  uint4 bits;
  memcpy(&bits, &pack, sizeof(bits));
  __stwb(reinterpret_cast<uint4*>(out), bits);
#else
  *reinterpret_cast<Pack<T, kWidth>*>(out) = pack;
#endif
}

}  // namespace tensord::server::cuda
