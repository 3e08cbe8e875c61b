#include "tensord/server/device/cuda/kernels/lines.cuh"
#include "tensord/server/device/cuda/kernels/network.h"
#include "tensord/server/device/cuda/kernels/value_check.cuh"

namespace tensord::server::cuda {
namespace {

// The target of a line.
struct Target {
  int64_t value = 0;  // a valid class
  bool ignored = true;
};

__device__ Target TargetOf(const CrossEntropyJob& job, int64_t line) {
  const int64_t value = job.wide_target ? static_cast<const int64_t*>(job.target)[line]
                                        : int64_t{static_cast<const int32_t*>(job.target)[line]};
  if (value == job.ignored) return {};
  return {CheckedClass(job.check, job.target_input, line, value, job.lines.extent), false};
}

template <typename T>
__device__ T WeightOf(const CrossEntropyJob& job, int64_t c) {
  return job.weight == nullptr ? T{1} : static_cast<const T*>(job.weight)[c];
}

template <typename T>
struct MaxOfTwo {
  __device__ T operator()(T a, T b) const { return a > b || a != a ? a : b; }  // or NaN
};

template <typename Storage>
__global__ void CrossEntropyKernel(CrossEntropyJob job) {
  using T = MathOf<Storage>;
  __shared__ T shared[kThreads];
  const auto* x = static_cast<const Storage*>(job.x);
  const LineShare share(job.lines);
  T max = -static_cast<T>(INFINITY);
  share.ForEach([&](int64_t, int64_t p) { max = MaxOfTwo<T>()(max, Load(x[p])); });
  max = CombineLanes(max, share.at, shared, MaxOfTwo<T>());
  const T offset = max == -static_cast<T>(INFINITY) ? T{0} : max;
  const T log_sum = math::Log(
      share.Sum(shared, [&](int64_t, int64_t p) { return math::Exp(Load(x[p]) - offset); }));
  T smooth = 0;
  if (job.smoothing > 0) {
    smooth = share.Sum(shared, [&](int64_t c, int64_t p) {
      return WeightOf<T>(job, c) * ((max - Load(x[p])) + log_sum);
    });
  }
  if (!share.is_first()) return;
  static_cast<T*>(job.lse)[share.line] = max + log_sum;
  const Target target = TargetOf(job, share.line);
  T loss = 0;
  if (!target.ignored) {
    const T nll = (max - Load(x[share.base + target.value * share.inner])) + log_sum;
    loss = static_cast<T>(1 - job.smoothing) * WeightOf<T>(job, target.value) * nll +
           static_cast<T>(job.smoothing) / static_cast<T>(job.lines.extent) * smooth;
  }
  static_cast<T*>(job.loss)[share.line] = loss;
}

template <typename Storage>
__global__ void CrossEntropyBackwardKernel(CrossEntropyJob job) {
  using T = MathOf<Storage>;
  __shared__ T shared[kThreads];
  const auto* x = static_cast<const Storage*>(job.x);
  auto* gx = static_cast<Storage*>(job.gx);
  const LineShare share(job.lines);
  T sum_of_weights = static_cast<T>(job.lines.extent);
  if (job.smoothing > 0 && job.weight != nullptr) {
    sum_of_weights = share.Sum(shared, [&](int64_t c, int64_t) { return WeightOf<T>(job, c); });
  }
  if (!share.inside) return;
  const T lse = static_cast<const T*>(job.lse)[share.line];
  const Target target = TargetOf(job, share.line);
  const T g = target.ignored ? T{0} : static_cast<const T*>(job.g)[share.line];
  const T part = static_cast<T>(job.smoothing) / static_cast<T>(job.lines.extent);
  const T at_target = static_cast<T>(1 - job.smoothing) * WeightOf<T>(job, target.value);
  const T a = g * (at_target + part * sum_of_weights), b = g * part, c = g * at_target;
  share.ForEach([&](int64_t i, int64_t p) {
    T value = (a == T{0} ? T{0} : math::Exp(Load(x[p]) - lse) * a) - WeightOf<T>(job, i) * b;
    if (i == target.value && !target.ignored) value -= c;
    gx[p] = Store<Storage>(value);
  });
}

struct CrossEntropyFamily {
  template <typename Storage>
  static cudaError_t Launch(const CrossEntropyJob& job, cudaStream_t stream) {
    return LaunchOverLines(
        job.gx == nullptr ? CrossEntropyKernel<Storage> : CrossEntropyBackwardKernel<Storage>, job,
        stream);
  }
};

}  // namespace

ByDType<CrossEntropyLauncher> CrossEntropyKernels() {
  return LaunchersFor<CrossEntropyLauncher, CrossEntropyFamily>(FloatingTypes());
}

}  // namespace tensord::server::cuda
