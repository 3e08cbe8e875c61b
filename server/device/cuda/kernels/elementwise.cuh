// The kernels of elementwise.h.
#pragma once

#include "tensord/server/device/cuda/kernels/broadcast.cuh"
#include "tensord/server/device/cuda/kernels/elementwise.h"

namespace tensord::server::cuda {

template <typename F, typename In, typename Out>
cudaError_t LaunchUnary(const void* in, void* out, int64_t size, cudaStream_t stream) {
  return LaunchFlat<F>(static_cast<Out*>(out), size, /*scalars=*/0, stream,
                       static_cast<const In*>(in));
}

template <typename F, typename In, typename Out>
cudaError_t LaunchBinary(const void* a, const void* b, void* out, const StridedLoop<2>& loop,
                         cudaStream_t stream) {
  return LaunchBroadcast<F>(static_cast<Out*>(out), loop, stream, static_cast<const In*>(a),
                            static_cast<const In*>(b));
}

// Families for LaunchersFor().
template <typename F>
struct UnaryFamily {
  template <typename Storage>
  static cudaError_t Launch(const void* in, void* out, int64_t size, cudaStream_t stream) {
    using T = KernelType<F, Storage>;
    return LaunchUnary<F, T, T>(in, out, size, stream);
  }
};

template <typename F>
struct ArithmeticFamily {
  template <typename Storage>
  static cudaError_t Launch(const void* a, const void* b, void* out, const StridedLoop<2>& loop,
                            cudaStream_t stream) {
    using T = KernelType<F, Storage>;
    return LaunchBinary<F, T, T>(a, b, out, loop, stream);
  }
};

template <typename F>
struct ComparisonFamily {
  template <typename Storage>
  static cudaError_t Launch(const void* a, const void* b, void* out, const StridedLoop<2>& loop,
                            cudaStream_t stream) {
    return LaunchBinary<F, KernelType<F, Storage>, Bool>(a, b, out, loop, stream);
  }
};

}  // namespace tensord::server::cuda
