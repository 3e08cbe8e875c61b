#include "tensord/server/device/cuda/kernels/reduction.cuh"

namespace tensord::server::cuda {
namespace {

template <typename Value>
struct Found {
  Value value;
  int64_t index;  // -1: no element
};

// Finds the index of the greatest or least element. If several elements are equal, finds the first
// of them. If an element is NaN, finds the first NaN.
template <typename T, bool kIsMax>
struct Arg {
  using In = T;
  using Acc = Found<MathOf<T>>;
  using Out = int64_t;

  SignedOrder<MathOf<T>> order;

  explicit Arg(const ReduceJob& job) : order(job) {}
  __device__ Acc Identity() const { return {MathOf<T>(), -1}; }
  __device__ Acc Accumulate(Acc acc, In x, int64_t index) const {
    return Combine(acc, {order(Load(x)), index});
  }
  __device__ Acc Combine(Acc a, Acc b) const { return Precedes(a, b) ? a : b; }
  __device__ Out Finish(Acc acc, int64_t) const { return acc.index; }

 private:
  __device__ static bool Precedes(const Acc& a, const Acc& b) {
    if (a.index < 0 || b.index < 0) return b.index < 0;
    const bool a_nan = IsNan(a.value), b_nan = IsNan(b.value);
    if (a_nan != b_nan) return a_nan;
    if (a_nan || a.value == b.value) return a.index < b.index;
    return kIsMax ? a.value > b.value : a.value < b.value;
  }
};

template <typename T>
using ArgMax = Arg<T, true>;
template <typename T>
using ArgMin = Arg<T, false>;

constexpr ReduceKernel kKernels[] = {
    {"argmax", LaunchersFor<ReduceLauncher, ReduceFamily<ArgMax>>(AllTypes())},
    {"argmin", LaunchersFor<ReduceLauncher, ReduceFamily<ArgMin>>(AllTypes())},
};

}  // namespace

std::span<const ReduceKernel> ArgKernels() { return kKernels; }

}  // namespace tensord::server::cuda
