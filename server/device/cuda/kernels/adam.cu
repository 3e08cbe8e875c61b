#include "tensord/server/device/cuda/kernels/adam.h"

#include "tensord/server/device/cuda/kernels/launch.cuh"

namespace tensord::server::cuda {
namespace {

template <typename Storage, bool kAmsgrad>
__global__ void AdamKernel(AdamJob job) {
  using T = MathOf<Storage>;
  __shared__ AdamNumbers numbers;
  if (threadIdx.x == 0) numbers = ComputeAdamNumbers(job.attributes, *job.step, *job.lr);
  __syncthreads();
  const auto at = [](const void* data, int64_t i) {
    return Load(static_cast<const Storage*>(data)[i]);
  };
  const auto set = [](void* data, int64_t i, T value) {
    static_cast<Storage*>(data)[i] = Store<Storage>(value);
  };
  for (int64_t i = FirstIndex(); i < job.size; i += IndexStep()) {
    const AdamElement<T> before = {at(job.p, i), at(job.m, i), at(job.v, i),
                                   kAmsgrad ? at(job.vmax, i) : T{0}};
    const AdamElement<T> after = AdamStep<kAmsgrad, T>(numbers, before, at(job.g, i));
    set(job.p_out, i, after.p);
    set(job.m_out, i, after.m);
    set(job.v_out, i, after.v);
    if constexpr (kAmsgrad) set(job.vmax_out, i, after.vmax);
  }
}

struct AdamFamily {
  template <typename Storage>
  static cudaError_t Launch(const AdamJob& job, cudaStream_t stream) {
    return LaunchKernel(
        job.vmax == nullptr ? AdamKernel<Storage, false> : AdamKernel<Storage, true>,
        GridSize(job.size), kThreads, stream, job);
  }
};

}  // namespace

ByDType<AdamLauncher> AdamKernels() {
  return LaunchersFor<AdamLauncher, AdamFamily>(FloatingTypes());
}

}  // namespace tensord::server::cuda
