#include "tensord/server/device/cuda/kernels/reduction.cuh"

namespace tensord::server::cuda {
namespace {

// The max of the elements so far, and their sum of e^(x - max). The sum is rescaled when
// the max grows (Milakov and Gimelshein, "Online normalizer calculation for softmax", 2018).
// If an element is NaN or +inf, `sum` becomes NaN, and so does every result.
template <typename T>
struct Running {
  T max;
  T sum;
};

template <typename T>
__device__ Running<T> Merge(Running<T> a, Running<T> b) {
  if (b.max > a.max) {
    const Running<T> swap = a;
    a = b;
    b = swap;
  }
  // b has no element above -inf, so b.sum is 0, or NaN if b has a NaN. It needs no factor. If
  // a.max is -inf, too, the factor e^(-inf + inf) would be NaN.
  if (b.max == static_cast<T>(-INFINITY)) return {a.max, a.sum + b.sum};
  return {a.max, a.sum + b.sum * math::Exp(b.max - a.max)};
}

// Finds the maximum of the elements first, so that the sum is rescaled only once.
template <int kWidth, typename T>
__device__ Running<T> Accumulate(Running<T> acc, const T (&x)[kWidth]) {
  T max = acc.max;
#pragma unroll
  for (int j = 0; j < kWidth; ++j) max = x[j] > max ? x[j] : max;
  if (max > acc.max) acc.sum *= math::Exp(acc.max - max);
#pragma unroll
  for (int j = 0; j < kWidth; ++j) {
    if (x[j] != static_cast<T>(-INFINITY)) acc.sum += math::Exp(x[j] - max);
  }
  return {max, acc.sum};
}

template <typename Storage, int kWidth>
__device__ Running<MathOf<Storage>> Accumulate(Running<MathOf<Storage>> acc,
                                               const Pack<Storage, kWidth>& pack) {
  MathOf<Storage> x[kWidth];
#pragma unroll
  for (int j = 0; j < kWidth; ++j) x[j] = Load(pack.value[j]);
  return Accumulate(acc, x);
}

// If several blocks share a row, there are two launches. The first computes a Running for each
// split. The second combines those of a row and writes the row's results.
enum class Part { kAll, kFirst, kSecond };

template <typename Storage, bool kLog>
__global__ void __launch_bounds__(kThreads) SoftmaxKernelFor(SoftmaxJob job, Part part) {
  using T = MathOf<Storage>;
  constexpr int kWidth = kPackWidth<Storage>;
  __shared__ Running<T> shared[kThreads];
  const TilePosition at(job.tile);
  const int64_t row = static_cast<int64_t>(blockIdx.x) * at.outputs + at.output;
  const bool inside = row < job.outer * job.inner;
  const int64_t base = inside ? row / job.inner * job.axis * job.inner + row % job.inner : 0;
  const auto* in = static_cast<const Storage*>(job.in) + base;
  auto* out = static_cast<Storage*>(job.out) + base;
  auto* partials = static_cast<Running<T>*>(job.partials) + row * job.tile.splits;
  const int64_t begin = blockIdx.y * job.tile.chunk;
  const int64_t end = inside ? min(begin + job.tile.chunk, job.axis) : begin;

  Running<T> acc{static_cast<T>(-INFINITY), T{0}};
  const auto accumulate = [&](int64_t i) { acc = Accumulate(acc, {T(Load(in[i * job.inner]))}); };
  if (part == Part::kSecond) {
    for (int i = at.lane; inside && i < job.tile.splits; i += at.lanes) {
      acc = Merge(acc, partials[i]);
    }
  } else if (job.packed) {
    ForRow(in, begin, end, at, accumulate,
           [&](int64_t, const Pack<Storage, kWidth>& pack) { acc = Accumulate(acc, pack); });
  } else {
    for (int64_t i = begin + at.lane; i < end; i += at.lanes) accumulate(i);
  }
  acc = CombineLanes(acc, at, shared, [](Running<T> a, Running<T> b) { return Merge(a, b); });
  if (part == Part::kFirst) {
    if (inside && at.lane == 0) partials[blockIdx.y] = acc;
    return;
  }

  const T log_sum = kLog ? math::Log(acc.sum) : T{0};
  const auto result = [&](Storage element) {
    const T x = Load(element);
    return Store<Storage>(kLog ? (x - acc.max) - log_sum : math::Exp(x - acc.max) / acc.sum);
  };
  const auto write = [&](int64_t i) { out[i * job.inner] = result(in[i * job.inner]); };
  if (job.packed) {
    ForRow(in, begin, end, at, write, [&](int64_t i, const Pack<Storage, kWidth>& pack) {
      Pack<Storage, kWidth> y;
#pragma unroll
      for (int j = 0; j < kWidth; ++j) y.value[j] = result(pack.value[j]);
      StorePack(out + i, y);
    });
  } else {
    for (int64_t i = begin + at.lane; i < end; i += at.lanes) write(i);
  }
}

template <bool kLog>
struct SoftmaxFamily {
  template <typename Storage>
  static cudaError_t Launch(const SoftmaxJob& job, cudaStream_t stream) {
    static_assert(sizeof(Running<MathOf<Storage>>) <= kPartialBytes);
    const int64_t blocks = TileCount(job.outer * job.inner, job.tile);
    if (blocks > kMaxGridX) return cudaErrorInvalidConfiguration;
    const dim3 grid(static_cast<unsigned>(blocks), job.tile.splits);
    const auto launch = [&](Part part) {
      return LaunchKernel(SoftmaxKernelFor<Storage, kLog>, grid, kThreads, stream, job, part);
    };
    if (job.tile.splits == 1) return launch(Part::kAll);
    const cudaError_t error = launch(Part::kFirst);
    return error != cudaSuccess ? error : launch(Part::kSecond);
  }
};

constexpr SoftmaxKernel kKernels[] = {
    {"softmax", LaunchersFor<SoftmaxLauncher, SoftmaxFamily<false>>(FloatingTypes())},
    {"log_softmax", LaunchersFor<SoftmaxLauncher, SoftmaxFamily<true>>(FloatingTypes())},
};

}  // namespace

std::span<const SoftmaxKernel> SoftmaxKernels() { return kKernels; }

}  // namespace tensord::server::cuda
