#include "tensord/server/device/cuda/kernels/reduction.cuh"

namespace tensord::server::cuda {
namespace {

// Floating dtypes are multiplied in double, as on the CPU: a product of few float32 may leave
// float32's range.
template <typename T>
struct Prod : ResultOf<T> {
  using In = T;
  using Acc = std::conditional_t<kIsFloating<T>, double, uint64_t>;
  using ResultOf<T>::ResultOf;

  __device__ Acc Identity() const { return Acc{1}; }
  __device__ Acc Accumulate(Acc acc, In x, int64_t) const {
    return acc * this->template Read<Acc>(x);
  }
  __device__ Acc Combine(Acc a, Acc b) const { return a * b; }
};

// Counts the elements that aren't zero.
template <typename T>
struct Count {
  using In = T;
  using Acc = int64_t;
  using Out = int64_t;

  explicit Count(const ReduceJob&) {}
  __device__ Acc Identity() const { return 0; }
  __device__ Acc Accumulate(Acc acc, In x, int64_t) const {
    return acc + (Load(x) != MathOf<T>{0} ? 1 : 0);
  }
  __device__ Acc Combine(Acc a, Acc b) const { return a + b; }
  __device__ Out Finish(Acc acc, int64_t) const { return acc; }
};

constexpr ReduceKernel kKernels[] = {
    {"prod", LaunchersFor<ReduceLauncher, ReduceFamily<Prod>>(AllTypes())},
    {"count_nonzero", LaunchersFor<ReduceLauncher, ReduceFamily<Count>>(AllTypes())},
};

}  // namespace

std::span<const ReduceKernel> ProdKernels() { return kKernels; }

}  // namespace tensord::server::cuda
