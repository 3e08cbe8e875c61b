#include "tensord/server/device/cuda/kernels/network.h"
#include "tensord/server/device/cuda/kernels/reduction.cuh"

namespace tensord::server::cuda {
namespace {

struct TwoSums {
  double first, second;
};
__device__ TwoSums Add(TwoSums a, TwoSums b) { return {a.first + b.first, a.second + b.second}; }

// Returns the sums of fn(position) over channel blockIdx.x to all threads of the block, which must
// all call it.
template <typename Fn>
__device__ TwoSums SumOverChannel(const BatchNormJob& job, TwoSums* shared, Fn fn) {
  const int64_t base = static_cast<int64_t>(blockIdx.x) * job.run;
  TwoSums sums = {0, 0};
  for (int64_t i = threadIdx.x; i < job.of_channel.size; i += kThreads) {
    int64_t offset[1];
    job.of_channel.Offsets(i, offset);
    sums = Add(sums, fn(base + offset[0]));
  }
  ReduceTile tile;
  tile.lanes_log2 = kThreadsLog2;
  __syncthreads();  // an earlier use of `shared` has ended
  return CombineLanes(sums, TilePosition(tile), shared, Add);
}

// Stores a value: if `wide`, as the math type, otherwise as the type of the elements.
template <typename Storage>
__device__ void StoreAs(bool wide, void* out, int64_t i, double value) {
  using T = MathOf<Storage>;
  if (wide) {
    static_cast<T*>(out)[i] = static_cast<T>(value);
  } else {
    static_cast<Storage*>(out)[i] = Store<Storage>(static_cast<T>(value));
  }
}

// Computes the statistics of channel blockIdx.x.
template <typename Storage>
__global__ void StatisticsKernel(BatchNormJob job) {
  using T = MathOf<Storage>;
  __shared__ TwoSums shared[kThreads];
  const auto* x = static_cast<const Storage*>(job.x);
  const auto count = static_cast<double>(job.of_channel.size);
  const double mean = SumOverChannel(job, shared,
                                     [&](int64_t p) {
                                       return TwoSums{static_cast<double>(Load(x[p])), 0};
                                     })
                          .first /
                      count;
  const double squares = SumOverChannel(job, shared, [&](int64_t p) {
                           const double d = static_cast<double>(Load(x[p])) - mean;
                           return TwoSums{d * d, 0};
                         }).first;
  if (threadIdx.x != 0) return;
  const int64_t c = blockIdx.x;
  static_cast<T*>(job.mean)[c] = static_cast<T>(mean);
  static_cast<T*>(job.invstd)[c] = static_cast<T>(1 / math::Sqrt(squares / count + job.eps));
  const double old_mean = static_cast<const T*>(job.running_mean)[c];
  const double old_var = static_cast<const T*>(job.running_var)[c];
  StoreAs<Storage>(job.wide_mean, job.new_mean, c, old_mean + job.momentum * (mean - old_mean));
  StoreAs<Storage>(job.wide_var, job.new_var, c,
                   old_var + job.momentum * (squares / (count - 1) - old_var));
}

template <typename Storage>
__global__ void NormalizeKernel(BatchNormJob job) {
  using T = MathOf<Storage>;
  const auto* x = static_cast<const Storage*>(job.x);
  auto* y = static_cast<Storage*>(job.y);
  for (int64_t i = FirstIndex(); i < job.channel_of.size; i += IndexStep()) {
    int64_t c[1];
    job.channel_of.Offsets(i, c);
    T mean, invstd;
    if (job.training) {
      mean = static_cast<const T*>(job.mean)[c[0]];
      invstd = static_cast<const T*>(job.invstd)[c[0]];
    } else {
      mean = static_cast<const T*>(job.running_mean)[c[0]];
      const T var = static_cast<const T*>(job.running_var)[c[0]];
      invstd = T{1} / math::Sqrt(var + static_cast<T>(job.eps));
    }
    const T scale =
        job.weight == nullptr ? invstd : invstd * static_cast<const T*>(job.weight)[c[0]];
    const T shift = job.bias == nullptr ? T{0} : static_cast<const T*>(job.bias)[c[0]];
    y[i] = Store<Storage>((Load(x[i]) - mean) * scale + shift);
  }
}

// Sets `sums` to Σ g and Σ g (x - mean), and computes the parameters' gradients, for channel
// blockIdx.x.
template <typename Storage>
__global__ void ProductsKernel(BatchNormJob job) {
  using T = MathOf<Storage>;
  __shared__ TwoSums shared[kThreads];
  const auto* x = static_cast<const Storage*>(job.x);
  const auto* g = static_cast<const Storage*>(job.g);
  const int64_t c = blockIdx.x;
  const double mean = static_cast<const T*>(job.mean)[c];
  const TwoSums sums = SumOverChannel(job, shared, [&](int64_t p) {
    const double gradient = Load(g[p]);
    return TwoSums{gradient, gradient * (static_cast<double>(Load(x[p])) - mean)};
  });
  if (threadIdx.x != 0) return;
  job.sums[2 * c] = sums.first;
  job.sums[2 * c + 1] = sums.second;
  const double invstd = static_cast<const T*>(job.invstd)[c];
  if (job.gw != nullptr) StoreAs<Storage>(job.wide_parameters, job.gw, c, sums.second * invstd);
  if (job.gb != nullptr) StoreAs<Storage>(job.wide_parameters, job.gb, c, sums.first);
}

template <typename Storage>
__global__ void GradientKernel(BatchNormJob job) {
  using T = MathOf<Storage>;
  const auto* x = static_cast<const Storage*>(job.x);
  const auto* g = static_cast<const Storage*>(job.g);
  auto* gx = static_cast<Storage*>(job.y);
  const auto count = static_cast<double>(job.of_channel.size);
  for (int64_t i = FirstIndex(); i < job.channel_of.size; i += IndexStep()) {
    int64_t c[1];
    job.channel_of.Offsets(i, c);
    const T invstd = static_cast<const T*>(job.invstd)[c[0]];
    T value = Load(g[i]);
    if (job.training) {
      const T shift = static_cast<T>(job.sums[2 * c[0]] / count);
      const T slope = static_cast<T>(job.sums[2 * c[0] + 1] / count) * invstd * invstd;
      value = value - shift - (Load(x[i]) - static_cast<const T*>(job.mean)[c[0]]) * slope;
    }
    const T weight = job.weight == nullptr ? T{1} : static_cast<const T*>(job.weight)[c[0]];
    gx[i] = Store<Storage>(value * (weight * invstd));
  }
}

struct BatchNormFamily {
  template <typename Storage>
  static cudaError_t Launch(const BatchNormJob& job, cudaStream_t stream) {
    if (job.channels > kMaxGridX) return cudaErrorInvalidConfiguration;
    const auto channels = static_cast<unsigned>(job.channels);
    const bool is_backward = job.g != nullptr || job.sums != nullptr;
    if (is_backward || job.training) {
      const cudaError_t error =
          LaunchKernel(is_backward ? ProductsKernel<Storage> : StatisticsKernel<Storage>, channels,
                       kThreads, stream, job);
      if (error != cudaSuccess) return error;
    }
    if (job.y == nullptr || job.channel_of.size == 0) return cudaSuccess;
    return LaunchKernel(is_backward ? GradientKernel<Storage> : NormalizeKernel<Storage>,
                        GridSize(job.channel_of.size), kThreads, stream, job);
  }
};

}  // namespace

ByDType<BatchNormLauncher> BatchNormKernels() {
  return LaunchersFor<BatchNormLauncher, BatchNormFamily>(FloatingTypes());
}

}  // namespace tensord::server::cuda
