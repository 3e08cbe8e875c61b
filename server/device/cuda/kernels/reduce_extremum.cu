#include "tensord/server/device/cuda/kernels/reduction.cuh"

namespace tensord::server::cuda {
namespace {

// Returns the least value of T, with which a maximum starts.
template <typename T>
__device__ T Lowest() {
  if constexpr (std::is_floating_point_v<T>) {
    return static_cast<T>(-INFINITY);
  } else {
    return kLowestOf<T>;
  }
}
// Returns the greatest value of T, with which a minimum starts.
template <typename T>
__device__ T Highest() {
  if constexpr (std::is_floating_point_v<T>) {
    return static_cast<T>(INFINITY);
  } else {
    return kHighestOf<T>;
  }
}

// If an element is NaN, the result is NaN.
template <typename T, typename Pick, bool kIsMax>
struct Extremum {
  using In = T;
  using Acc = MathOf<T>;
  using Out = T;

  SignedOrder<Acc> order;

  explicit Extremum(const ReduceJob& job) : order(job) {}
  __device__ Acc Identity() const { return kIsMax ? Lowest<Acc>() : Highest<Acc>(); }
  __device__ Acc Accumulate(Acc acc, In x, int64_t) const { return Pick()(acc, order(Load(x))); }
  __device__ Acc Combine(Acc a, Acc b) const { return Pick()(a, b); }
  __device__ Out Finish(Acc acc, int64_t) const { return Store<Out>(order(acc)); }
};

template <typename T>
using Max = Extremum<T, Maximum, true>;
template <typename T>
using Min = Extremum<T, Minimum, false>;

constexpr ReduceKernel kKernels[] = {
    {"max", LaunchersFor<ReduceLauncher, ReduceFamily<Max>>(AllTypes())},
    {"min", LaunchersFor<ReduceLauncher, ReduceFamily<Min>>(AllTypes())},
};

}  // namespace

std::span<const ReduceKernel> ExtremumKernels() { return kKernels; }

}  // namespace tensord::server::cuda
