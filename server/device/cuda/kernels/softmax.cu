#include "tensord/server/device/cuda/kernels/reduction.cuh"

namespace tensord::server::cuda {
namespace {

// The sum of e^(x - greatest) over the elements seen, kept while the greatest grows (Milakov and
// Gimelshein, "Online normalizer calculation for softmax", 2018). A NaN or +inf makes `sum` NaN,
// and so every result.
template <typename T>
struct Running {
  T greatest;
  T sum;
};

template <typename T>
__device__ Running<T> Merge(Running<T> a, Running<T> b) {
  if (b.greatest > a.greatest) {
    const Running<T> swap = a;
    a = b;
    b = swap;
  }
  // Of nothing but -inf the sum is 0 (or NaN, were there a NaN); e^(-inf + inf) would spoil it.
  if (b.greatest == static_cast<T>(-INFINITY)) return {a.greatest, a.sum + b.sum};
  return {a.greatest, a.sum + b.sum * math::Exp(b.greatest - a.greatest)};
}

template <typename T>
__device__ Running<T> Take(Running<T> acc, T x) {
  if (x > acc.greatest) return {x, acc.sum * math::Exp(acc.greatest - x) + math::Exp(x - x)};
  if (x == static_cast<T>(-INFINITY)) return acc;
  return {acc.greatest, acc.sum + math::Exp(x - acc.greatest)};
}

template <typename Storage, bool kLog>
__global__ void SoftmaxKernelFor(SoftmaxJob job) {
  using T = MathOf<Storage>;
  __shared__ Running<T> shared[kThreads];
  const TilePosition at(job.tile);
  const int64_t row = static_cast<int64_t>(blockIdx.x) * at.outputs + at.output;
  const bool inside = row < job.outer * job.inner;
  const int64_t base = inside ? row / job.inner * job.axis * job.inner + row % job.inner : 0;
  const auto* in = static_cast<const Storage*>(job.in) + base;
  auto* out = static_cast<Storage*>(job.out) + base;
  Running<T> acc{static_cast<T>(-INFINITY), T{0}};
  if (inside) {
    for (int64_t i = at.lane; i < job.axis; i += at.lanes) {
      acc = Take(acc, T(Load(in[i * job.inner])));
    }
  }
  acc = CombineLanes(acc, at, shared, [](Running<T> a, Running<T> b) { return Merge(a, b); });
  if (!inside) return;
  const T log_sum = kLog ? math::Log(acc.sum) : T{0};
  for (int64_t i = at.lane; i < job.axis; i += at.lanes) {
    const T x = Load(in[i * job.inner]);
    const T y = kLog ? (x - acc.greatest) - log_sum : math::Exp(x - acc.greatest) / acc.sum;
    out[i * job.inner] = Store<Storage>(y);
  }
}

template <bool kLog>
struct SoftmaxFamily {
  template <typename Storage>
  static cudaError_t Launch(const SoftmaxJob& job, cudaStream_t stream) {
    const int64_t blocks = TileCount(job.outer * job.inner, job.tile);
    if (blocks > kMaxGridX) return cudaErrorInvalidConfiguration;
    return LaunchKernel(SoftmaxKernelFor<Storage, kLog>, static_cast<unsigned>(blocks), kThreads,
                        stream, job);
  }
};

constexpr SoftmaxKernel kKernels[] = {
    {"softmax", LaunchersFor<SoftmaxLauncher, SoftmaxFamily<false>>(FloatingTypes())},
    {"log_softmax", LaunchersFor<SoftmaxLauncher, SoftmaxFamily<true>>(FloatingTypes())},
};

}  // namespace

std::span<const SoftmaxKernel> SoftmaxKernels() { return kKernels; }

}  // namespace tensord::server::cuda
