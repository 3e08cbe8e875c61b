#include "tensord/tests/cuda_emulation/launch.h"
// Device code follows.
#include "tensord/tests/unit/cuda_emulation/test_kernels.h"

namespace tensord::cuda_emulation {
namespace {

__global__ void FillKernel(int* out, int size, int value) {
  const int first = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  for (int i = first; i < size; i += static_cast<int>(gridDim.x * blockDim.x)) out[i] = value;
}

__global__ void FillPacksKernel(int4* out, int packs, int value) {
  for (unsigned i = threadIdx.x; i < static_cast<unsigned>(packs); i += blockDim.x) {
    out[i] = make_int4(value, value, value, value);
  }
}

template <bool kBarriers>
__global__ void TreeSumKernel(const int* in, int* out) {
  __shared__ int sums[kThreads];
  const unsigned thread = threadIdx.x;
  sums[thread] = in[thread];
  for (unsigned half = kThreads / 2; half > 0; half /= 2) {
    if constexpr (kBarriers) __syncthreads();
    if (thread < half) sums[thread] += sums[thread + half];
  }
  if (thread == 0) *out = sums[0];
}

__global__ void WarpSumKernel(const int* in, int* out) {
  int sum = in[threadIdx.x];
  for (int lanes = warpSize / 2; lanes > 0; lanes /= 2) sum += __shfl_xor_sync(~0u, sum, lanes);
  if (threadIdx.x % warpSize == 0) out[threadIdx.x / warpSize] = sum;
}

__global__ void DivergentBarrierKernel() {
  if (threadIdx.x % 2 == 0) return;
  __syncthreads();
}

}  // namespace

cudaError_t LaunchFill(int* out, int size, int value, cudaStream_t stream) {
  return Launch(FillKernel, 1, kThreads, stream, out, size, value);
}

cudaError_t LaunchFillWith(unsigned blocks, unsigned threads, int* out, int size,
                           cudaStream_t stream) {
  return Launch(FillKernel, blocks, threads, stream, out, size, /*value=*/1);
}

cudaError_t LaunchFillPacks(int* out, int packs, int value, cudaStream_t stream) {
  return Launch(FillPacksKernel, 1, kThreads, stream, reinterpret_cast<int4*>(out), packs, value);
}

cudaError_t LaunchTreeSum(const int* in, int* out, bool with_barriers, cudaStream_t stream) {
  return Launch(with_barriers ? TreeSumKernel<true> : TreeSumKernel<false>, 1, kThreads, stream, in,
                out);
}

cudaError_t LaunchWarpSum(const int* in, int* out, cudaStream_t stream) {
  return Launch(WarpSumKernel, 1, kThreads, stream, in, out);
}

cudaError_t LaunchDivergentBarrier(cudaStream_t stream) {
  return Launch(DivergentBarrierKernel, 1, kThreads, stream);
}

}  // namespace tensord::cuda_emulation
