// The build includes this header first in each .cu file that a host compiler compiles.
#pragma once

#include <cuda_runtime.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <tuple>
#include <type_traits>
#include <utility>

#include "tensord/tests/cuda_emulation/device_code.h"

namespace tensord::cuda_emulation {

// Replaces device addresses in [arguments, arguments + bytes) by the addresses that kernels use
// (address_space.h): each aligned word whose value is the device address of memory that the current
// device may access now.
void TranslateArguments(void* arguments, size_t bytes);

// Enqueues a grid on `stream`, or records it in the graph that is captured there. `thread` is run
// once for each CUDA thread. Returns the errors that a launch returns.
cudaError_t EnqueueKernel(dim3 grid, dim3 block, cudaStream_t stream, std::function<void()> thread);

// Enqueues kernel<<<grid, block, 0, stream>>>(arguments...). Copies the arguments.
template <typename... Parameters, typename... Arguments>
cudaError_t Launch(void (*kernel)(Parameters...), dim3 grid, dim3 block, cudaStream_t stream,
                   Arguments&&... arguments) {
  static_assert((std::is_trivially_copyable_v<std::remove_cvref_t<Parameters>> && ...));
  std::tuple<std::remove_cvref_t<Parameters>...> copies(std::forward<Arguments>(arguments)...);
  TranslateArguments(&copies, sizeof(copies));
  return EnqueueKernel(grid, block, stream,
                       [kernel, copies = std::move(copies)] { std::apply(kernel, copies); });
}

}  // namespace tensord::cuda_emulation

// The overload for kernels, which cuda_runtime.h declares for nvcc only.
template <typename Kernel>
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, Kernel* kernel) {
  return cudaFuncGetAttributes(attributes, reinterpret_cast<const void*>(kernel));
}
