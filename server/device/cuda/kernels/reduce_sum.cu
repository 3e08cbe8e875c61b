#include "tensord/server/device/cuda/kernels/reduction.cuh"

namespace tensord::server::cuda {
namespace {

// Integers and bool are summed in 64 bits. An overflow wraps around.
template <typename T>
struct Sum : ResultOf<T> {
  using In = T;
  using Acc = std::conditional_t<kIsFloating<T>, MathOf<T>, uint64_t>;
  using ResultOf<T>::ResultOf;

  __device__ Acc Identity() const { return Acc{0}; }
  __device__ Acc Accumulate(Acc acc, In x, int64_t) const {
    return acc + this->template Read<Acc>(x);
  }
  __device__ Acc Combine(Acc a, Acc b) const { return a + b; }
};

template <typename T>
struct Mean : Sum<T> {
  using typename Sum<T>::Acc;
  using Sum<T>::Sum;
  __device__ T Finish(Acc acc, int64_t count) const {
    return Store<T>(acc / static_cast<Acc>(count));  // the mean of no elements is 0 / 0, NaN
  }
};

// Computes (sum |x|^p)^(1/p). For p = inf, this is the greatest |x|. For p = -inf, it is the least
// |x|. For p = 0, it is the number of elements that aren't 0. Accumulates in double, as on the CPU:
// the square of a float32 may overflow.
template <typename T>
struct Norm {
  using In = T;
  using Acc = double;
  using Out = T;
  enum class Kind { kCount, kSum, kEuclidean, kPower, kMax, kMin };

  Kind kind;
  Acc ord;

  explicit Norm(const ReduceJob& job) : kind(KindOf(job.ord)), ord(job.ord) {}

  static Kind KindOf(double ord) {
    if (ord == 0) return Kind::kCount;
    if (ord == 1) return Kind::kSum;
    if (ord == 2) return Kind::kEuclidean;
    if (std::isinf(ord)) return ord > 0 ? Kind::kMax : Kind::kMin;
    return Kind::kPower;
  }

  __device__ Acc Identity() const {
    return kind == Kind::kMin ? static_cast<Acc>(INFINITY) : Acc{0};
  }
  __device__ Acc Accumulate(Acc acc, In element, int64_t) const {
    const Acc x = math::Fabs(static_cast<Acc>(Load(element)));
    switch (kind) {
      case Kind::kCount:
        return acc + (x != Acc{0} ? Acc{1} : Acc{0});
      case Kind::kEuclidean:
        return acc + x * x;
      case Kind::kPower:
        return acc + math::Pow(x, ord);
      default:
        return Combine(acc, x);
    }
  }
  __device__ Acc Combine(Acc a, Acc b) const {
    if (kind == Kind::kMax) return Maximum()(a, b);
    if (kind == Kind::kMin) return Minimum()(a, b);
    return a + b;
  }
  __device__ Out Finish(Acc acc, int64_t) const {
    if (kind == Kind::kEuclidean) acc = math::Sqrt(acc);
    if (kind == Kind::kPower) acc = math::Pow(acc, Acc{1} / ord);
    return Store<Out>(static_cast<MathOf<T>>(acc));
  }
};

constexpr ReduceKernel kKernels[] = {
    {"sum", LaunchersFor<ReduceLauncher, ReduceFamily<Sum>>(AllTypes())},
    {"mean", LaunchersFor<ReduceLauncher, ReduceFamily<Mean>>(FloatingTypes())},
    {"norm", LaunchersFor<ReduceLauncher, ReduceFamily<Norm>>(FloatingTypes())},
};

}  // namespace

std::span<const ReduceKernel> SumKernels() { return kKernels; }

}  // namespace tensord::server::cuda
