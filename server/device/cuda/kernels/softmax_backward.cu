#include "tensord/server/device/cuda/kernels/lines.cuh"
#include "tensord/server/device/cuda/kernels/network.h"

namespace tensord::server::cuda {
namespace {

template <typename Storage>
__global__ void SoftmaxBackwardKernel(SoftmaxBackwardJob job) {
  using T = MathOf<Storage>;
  __shared__ T shared[kThreads];
  const auto* g = static_cast<const Storage*>(job.g);
  const auto* y = static_cast<const Storage*>(job.y);
  auto* gx = static_cast<Storage*>(job.gx);
  const LineShare share(job.lines);
  const T sum = share.Sum(
      shared, [&](int64_t, int64_t p) { return job.log ? Load(g[p]) : Load(g[p]) * Load(y[p]); });
  share.ForEach([&](int64_t, int64_t p) {
    const T gradient = Load(g[p]), result = Load(y[p]);
    gx[p] =
        Store<Storage>(job.log ? gradient - math::Exp(result) * sum : result * (gradient - sum));
  });
}

struct SoftmaxBackwardFamily {
  template <typename Storage>
  static cudaError_t Launch(const SoftmaxBackwardJob& job, cudaStream_t stream) {
    return LaunchOverLines(SoftmaxBackwardKernel<Storage>, job, stream);
  }
};

}  // namespace

ByDType<SoftmaxBackwardLauncher> SoftmaxBackwardKernels() {
  return LaunchersFor<SoftmaxBackwardLauncher, SoftmaxBackwardFamily>(FloatingTypes());
}

}  // namespace tensord::server::cuda
