// The kernels behind elementwise.h.
#pragma once

#include "tensord/server/device/cuda/kernels/elementwise.h"
#include "tensord/server/device/cuda/kernels/launch.cuh"

namespace tensord::server::cuda {

// The first `packs` * width elements go by packs of 16 bytes, the rest one by one.
template <typename F, typename In, typename Out>
__global__ void UnaryKernelFor(const In* in, Out* out, int64_t size, int64_t packs) {
  constexpr int kWidth = kPackWidth<In, Out>;
  for (int64_t i = FirstIndex(); i < packs; i += IndexStep()) {
    const auto x = reinterpret_cast<const Pack<In, kWidth>*>(in)[i];
    Pack<Out, kWidth> y;
#pragma unroll
    for (int j = 0; j < kWidth; ++j) y.value[j] = Store<Out>(F()(Load(x.value[j])));
    reinterpret_cast<Pack<Out, kWidth>*>(out)[i] = y;
  }
  for (int64_t i = packs * kWidth + FirstIndex(); i < size; i += IndexStep()) {
    out[i] = Store<Out>(F()(Load(in[i])));
  }
}

template <typename F, typename In, typename Out>
cudaError_t LaunchUnary(const void* in, void* out, int64_t size, cudaStream_t stream) {
  const auto* typed_in = static_cast<const In*>(in);
  auto* typed_out = static_cast<Out*>(out);
  constexpr int kWidth = kPackWidth<In, Out>;
  const int64_t packs = AlignedForPacks(typed_in, typed_out) ? size / kWidth : 0;
  return LaunchKernel(UnaryKernelFor<F, In, Out>, GridSize(std::max(packs, size - packs * kWidth)),
                      kThreads, stream, typed_in, typed_out, size, packs);
}

template <typename F, typename In, typename Out>
__global__ void BinaryKernelDense(const In* a, const In* b, Out* out, int64_t size, int64_t packs) {
  constexpr int kWidth = kPackWidth<In, Out>;
  for (int64_t i = FirstIndex(); i < packs; i += IndexStep()) {
    const auto x = reinterpret_cast<const Pack<In, kWidth>*>(a)[i];
    const auto y = reinterpret_cast<const Pack<In, kWidth>*>(b)[i];
    Pack<Out, kWidth> z;
#pragma unroll
    for (int j = 0; j < kWidth; ++j) {
      z.value[j] = Store<Out>(F()(Load(x.value[j]), Load(y.value[j])));
    }
    reinterpret_cast<Pack<Out, kWidth>*>(out)[i] = z;
  }
  for (int64_t i = packs * kWidth + FirstIndex(); i < size; i += IndexStep()) {
    out[i] = Store<Out>(F()(Load(a[i]), Load(b[i])));
  }
}

template <typename F, typename In, typename Out>
__global__ void BinaryKernelStrided(const In* a, const In* b, Out* out, StridedLoop<2> loop) {
  for (int64_t i = FirstIndex(); i < loop.size; i += IndexStep()) {
    int64_t offset[2];
    loop.Offsets(i, offset);
    out[i] = Store<Out>(F()(Load(a[offset[0]]), Load(b[offset[1]])));
  }
}

template <typename F, typename In, typename Out>
cudaError_t LaunchBinary(const void* a, const void* b, void* out, int64_t size,
                         const StridedLoop<2>* loop, cudaStream_t stream) {
  const auto* typed_a = static_cast<const In*>(a);
  const auto* typed_b = static_cast<const In*>(b);
  auto* typed_out = static_cast<Out*>(out);
  if (loop != nullptr) {
    return LaunchKernel(BinaryKernelStrided<F, In, Out>, GridSize(size), kThreads, stream, typed_a,
                        typed_b, typed_out, *loop);
  }
  constexpr int kWidth = kPackWidth<In, Out>;
  const int64_t packs = AlignedForPacks(typed_a, typed_b, typed_out) ? size / kWidth : 0;
  return LaunchKernel(BinaryKernelDense<F, In, Out>,
                      GridSize(std::max(packs, size - packs * kWidth)), kThreads, stream, typed_a,
                      typed_b, typed_out, size, packs);
}

// Families for LaunchersFor().
template <typename F>
struct UnaryFamily {
  template <typename Storage>
  static cudaError_t Launch(const void* in, void* out, int64_t size, cudaStream_t stream) {
    return LaunchUnary<F, Storage, Storage>(in, out, size, stream);
  }
};

template <typename F>
struct ArithmeticFamily {
  template <typename Storage>
  static cudaError_t Launch(const void* a, const void* b, void* out, int64_t size,
                            const StridedLoop<2>* loop, cudaStream_t stream) {
    return LaunchBinary<F, Storage, Storage>(a, b, out, size, loop, stream);
  }
};

template <typename F>
struct ComparisonFamily {
  template <typename Storage>
  static cudaError_t Launch(const void* a, const void* b, void* out, int64_t size,
                            const StridedLoop<2>* loop, cudaStream_t stream) {
    return LaunchBinary<F, Storage, Bool>(a, b, out, size, loop, stream);
  }
};

template <typename F, typename List>
constexpr ByDType<BinaryLauncher> Arithmetic(List list) {
  return LaunchersFor<BinaryLauncher, ArithmeticFamily<F>>(list);
}

}  // namespace tensord::server::cuda
