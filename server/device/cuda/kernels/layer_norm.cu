#include "tensord/server/device/cuda/kernels/lines.cuh"
#include "tensord/server/device/cuda/kernels/network.h"

namespace tensord::server::cuda {
namespace {

template <typename Storage>
__global__ void LayerNormKernel(LayerNormJob job) {
  using T = MathOf<Storage>;
  __shared__ T shared[kThreads];
  const auto* x = static_cast<const Storage*>(job.x);
  const auto* weight = static_cast<const T*>(job.weight);
  const auto* bias = static_cast<const T*>(job.bias);
  auto* y = static_cast<Storage*>(job.y);
  const LineShare share(job.lines);
  const T count = static_cast<T>(job.lines.extent);
  T mean = 0;
  if (job.mean != nullptr) {
    mean = share.Sum(shared, [&](int64_t, int64_t p) { return Load(x[p]); }) / count;
  }
  const T squares = share.Sum(shared, [&](int64_t, int64_t p) {
    const T deviation = Load(x[p]) - mean;
    return deviation * deviation;
  });
  const T rstd = T{1} / math::Sqrt(squares / count + static_cast<T>(job.eps));
  share.ForEach([&](int64_t i, int64_t p) {
    T value = (Load(x[p]) - mean) * rstd;
    if (weight != nullptr) value *= weight[i];
    if (bias != nullptr) value += bias[i];
    y[p] = Store<Storage>(value);
  });
  if (!share.is_first()) return;
  if (job.mean != nullptr) static_cast<T*>(job.mean)[share.line] = mean;
  static_cast<T*>(job.rstd)[share.line] = rstd;
}

// Computes the gradient of x.
template <typename Storage>
__global__ void LayerNormBackwardKernel(LayerNormBackwardJob job) {
  using T = MathOf<Storage>;
  __shared__ T shared[kThreads];
  const auto* g = static_cast<const Storage*>(job.g);
  const auto* x = static_cast<const Storage*>(job.x);
  const auto* weight = static_cast<const T*>(job.weight);
  auto* gx = static_cast<Storage*>(job.gx);
  const LineShare share(job.lines);
  const T rstd = share.inside ? static_cast<const T*>(job.rstd)[share.line] : T{0};
  const T mean =
      share.inside && job.mean != nullptr ? static_cast<const T*>(job.mean)[share.line] : T{0};
  const T count = static_cast<T>(job.lines.extent);
  const auto scaled = [&](int64_t i, int64_t p) {
    return weight != nullptr ? Load(g[p]) * weight[i] : Load(g[p]);
  };
  const auto normalized = [&](int64_t p) { return (Load(x[p]) - mean) * rstd; };
  const T shift = job.mean != nullptr ? share.Sum(shared, scaled) / count : T{0};
  const T slope =
      share.Sum(shared, [&](int64_t i, int64_t p) { return scaled(i, p) * normalized(p); }) / count;
  share.ForEach([&](int64_t i, int64_t p) {
    gx[p] = Store<Storage>(rstd * (scaled(i, p) - shift - normalized(p) * slope));
  });
}

// Adds up the gradients of the parameters over the rows of part blockIdx.y. A thread has a column.
template <typename Storage>
__global__ void LayerNormPartsKernel(LayerNormBackwardJob job) {
  using T = MathOf<Storage>;
  const auto* g = static_cast<const Storage*>(job.g);
  const auto* x = static_cast<const Storage*>(job.x);
  const int64_t column = FirstIndex(), columns = job.lines.extent;
  if (column >= columns) return;
  const int64_t begin = blockIdx.y * job.rows_of_part;
  const int64_t end = min(begin + job.rows_of_part, job.lines.outer);
  T of_weight = 0, of_bias = 0;
  for (int64_t row = begin; row < end; ++row) {
    const T gradient = Load(g[row * columns + column]);
    const T mean = job.mean != nullptr ? static_cast<const T*>(job.mean)[row] : T{0};
    of_weight += gradient *
                 ((Load(x[row * columns + column]) - mean) * static_cast<const T*>(job.rstd)[row]);
    of_bias += gradient;
  }
  T* part = static_cast<T*>(job.parts) + blockIdx.y * 2 * columns;
  part[column] = of_weight;
  part[columns + column] = of_bias;
}

// Adds the parts in order. A thread has a column.
template <typename Storage>
__global__ void AddPartsKernel(LayerNormBackwardJob job) {
  using T = MathOf<Storage>;
  const int64_t column = FirstIndex(), columns = job.lines.extent;
  if (column >= columns) return;
  double of_weight = 0, of_bias = 0;
  for (int64_t p = 0; p < job.parts_count; ++p) {
    const T* part = static_cast<const T*>(job.parts) + p * 2 * columns;
    of_weight += part[column];
    of_bias += part[columns + column];
  }
  const auto store = [&](void* out, double value) {
    if (out == nullptr) return;
    if (job.wide_parameters) {
      static_cast<T*>(out)[column] = static_cast<T>(value);
    } else {
      static_cast<Storage*>(out)[column] = Store<Storage>(static_cast<T>(value));
    }
  };
  store(job.gw, of_weight);
  store(job.gb, of_bias);
}

struct LayerNormFamily {
  template <typename Storage>
  static cudaError_t Launch(const LayerNormJob& job, cudaStream_t stream) {
    return LaunchOverLines(LayerNormKernel<Storage>, job, stream);
  }
};

struct LayerNormBackwardFamily {
  template <typename Storage>
  static cudaError_t Launch(const LayerNormBackwardJob& job, cudaStream_t stream) {
    if (job.gx != nullptr && job.lines.count() > 0) {
      const cudaError_t error = LaunchOverLines(LayerNormBackwardKernel<Storage>, job, stream);
      if (error != cudaSuccess) return error;
    }
    if (job.gw == nullptr && job.gb == nullptr) return cudaSuccess;
    const int64_t blocks = (job.lines.extent + kThreads - 1) / kThreads;
    if (blocks > kMaxGridX) return cudaErrorInvalidConfiguration;
    const auto columns = static_cast<unsigned>(blocks);
    if (job.parts_count > 0) {
      const cudaError_t error = LaunchKernel(LayerNormPartsKernel<Storage>,
                                             dim3(columns, static_cast<unsigned>(job.parts_count)),
                                             kThreads, stream, job);
      if (error != cudaSuccess) return error;
    }
    return LaunchKernel(AddPartsKernel<Storage>, columns, kThreads, stream, job);
  }
};

}  // namespace

ByDType<LayerNormLauncher> LayerNormKernels() {
  return LaunchersFor<LayerNormLauncher, LayerNormFamily>(FloatingTypes());
}
ByDType<LayerNormBackwardLauncher> LayerNormBackwardKernels() {
  return LaunchersFor<LayerNormBackwardLauncher, LayerNormBackwardFamily>(FloatingTypes());
}

}  // namespace tensord::server::cuda
