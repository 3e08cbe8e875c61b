// Elementwise kernels for any number of operands, which may be broadcast. F is a functor of
// elementwise_math.h; Out and In are storage types.
#pragma once

#include "tensord/server/device/cuda/kernels/launch.cuh"
#include "tensord/server/device/cuda/kernels/strided_loop.h"

namespace tensord::server::cuda {

template <typename F, typename Out, int kWidth, typename... In>
__device__ Pack<Out, kWidth> ApplyToPacks(const Pack<In, kWidth>&... in) {
  Pack<Out, kWidth> out;
#pragma unroll
  for (int j = 0; j < kWidth; ++j) out.value[j] = Apply<F, Out>(in.value[j]...);
  return out;
}

// ---------------------------------------------------------------- dense operands and scalars

// If the operand is a scalar, returns its element kWidth times. Otherwise returns pack i of the
// dense operand.
template <int kWidth, typename T>
__device__ Pack<T, kWidth> LoadFlat(const T* in, int64_t i, bool scalar) {
  if (!scalar) return reinterpret_cast<const Pack<T, kWidth>*>(in)[i];
  const T value = *in;
  Pack<T, kWidth> pack;
#pragma unroll
  for (int j = 0; j < kWidth; ++j) pack.value[j] = value;
  return pack;
}

template <typename F, typename Out, typename... In, size_t... n>
__device__ void ComputeFlat(Out* out, int64_t size, int64_t packs, unsigned scalars,
                            std::index_sequence<n...>, const In*... in) {
  constexpr int kWidth = kPackWidth<Out, In...>;
  for (int64_t i = FirstIndex(); i < packs; i += IndexStep()) {
    reinterpret_cast<Pack<Out, kWidth>*>(out)[i] =
        ApplyToPacks<F, Out, kWidth>(LoadFlat<kWidth>(in, i, (scalars >> n & 1) != 0)...);
  }
  for (int64_t i = packs * kWidth + FirstIndex(); i < size; i += IndexStep()) {
    out[i] = Apply<F, Out>(in[(scalars >> n & 1) != 0 ? 0 : i]...);
  }
}

// If bit n of `scalars` is set, operand n is a scalar. Threads compute the first `packs` packs of
// kWidth elements, then the remaining elements one by one.
template <typename F, typename Out, typename... In>
__global__ void FlatKernelFor(Out* out, int64_t size, int64_t packs, unsigned scalars,
                              const In*... in) {
  ComputeFlat<F>(out, size, packs, scalars, std::index_sequence_for<In...>(), in...);
}

template <typename F, typename Out, typename... In>
cudaError_t LaunchFlat(Out* out, int64_t size, unsigned scalars, cudaStream_t stream,
                       const In*... in) {
  constexpr int kWidth = kPackWidth<Out, In...>;
  int n = 0;
  const bool aligned =
      AlignedForPacks(out) && (((scalars >> n++ & 1) != 0 || AlignedForPacks(in)) && ...);
  const int64_t packs = aligned ? size / kWidth : 0;
  return LaunchKernel(FlatKernelFor<F, Out, In...>,
                      GridSize(std::max(packs, size - packs * kWidth)), kThreads, stream, out, size,
                      packs, scalars, in...);
}

// ---------------------------------------------------------------- any operands

// Returns the kWidth elements of an operand that begin at `in` and are `stride` apart. If they are
// contiguous and aligned, loads them with one instruction.
template <int kWidth, typename T>
__device__ Pack<T, kWidth> LoadRun(const T* in, int64_t stride) {
  using Packed = Pack<T, kWidth>;
  if (stride == 1 && reinterpret_cast<uintptr_t>(in) % sizeof(Packed) == 0) {
    return *reinterpret_cast<const Packed*>(in);
  }
  Packed pack;
#pragma unroll
  for (int j = 0; j < kWidth; ++j) pack.value[j] = in[j * stride];
  return pack;
}

template <typename F, typename Out, typename... In, size_t... n>
__device__ void ComputeRows(Out* out, const StridedLoop<sizeof...(In)>& loop, int64_t packs,
                            std::index_sequence<n...>, const In*... in) {
  constexpr int kWidth = kPackWidth<Out, In...>;
  const int last = loop.rank - 1;
  const int64_t items = loop.size - packs * (kWidth - 1);  // packs, then single elements
  int64_t offset[sizeof...(In)];
  for (int64_t i = FirstIndex(); i < items; i += IndexStep()) {
    const bool packed = i < packs;
    int64_t at = packed ? i * kWidth : i + packs * (kWidth - 1);
    if (packed && loop.Offsets(at, offset) <= loop.extent[last] - kWidth) {
      reinterpret_cast<Pack<Out, kWidth>*>(out)[i] =
          ApplyToPacks<F, Out, kWidth>(LoadRun<kWidth>(in + offset[n], loop.stride[n][last])...);
      continue;
    }
    for (const int64_t end = packed ? at + kWidth : at + 1; at < end; ++at) {
      loop.Offsets(at, offset);
      out[at] = Apply<F, Out>(in[offset[n]]...);
    }
  }
}

// Threads compute the first `packs` packs of the output, then the remaining elements one by one. If
// a pack crosses the end of a row, its elements are computed one by one, too.
template <typename F, typename Out, typename... In>
__global__ void RowsKernelFor(Out* out, StridedLoop<sizeof...(In)> loop, int64_t packs,
                              const In*... in) {
  ComputeRows<F>(out, loop, packs, std::index_sequence_for<In...>(), in...);
}

// out[i] = F(in[n][offset of i in input n]...). `loop` has the output's shape and the inputs'
// strides. The inputs are dense; along broadcast axes their strides are 0. `out` may be an input
// that has the output's shape.
template <typename F, typename Out, typename... In>
cudaError_t LaunchBroadcast(Out* out, const StridedLoop<sizeof...(In)>& loop, cudaStream_t stream,
                            const In*... in) {
  if (loop.rank == 1) {
    unsigned scalars = 0;
    for (size_t n = 0; n < sizeof...(In); ++n) scalars |= (loop.stride[n][0] == 0 ? 1u : 0u) << n;
    return LaunchFlat<F>(out, loop.size, scalars, stream, in...);
  }
  constexpr int kWidth = kPackWidth<Out, In...>;
  const bool packed = AlignedForPacks(out) && loop.extent[loop.rank - 1] >= kWidth;
  const int64_t packs = packed ? loop.size / kWidth : 0;
  return LaunchKernel(RowsKernelFor<F, Out, In...>, GridSize(loop.size - packs * (kWidth - 1)),
                      kThreads, stream, out, loop, packs, in...);
}

}  // namespace tensord::server::cuda
