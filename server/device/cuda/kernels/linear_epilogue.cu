#include "tensord/server/device/cuda/kernels/linear_epilogue.h"

#include "tensord/server/device/cuda/kernels/launch.cuh"

namespace tensord::server::cuda {
namespace {

struct Identity {
  __device__ float operator()(float x) const { return x; }
};

template <typename Activation, typename Storage>
__global__ void LinearEpilogueKernelFor(LinearEpilogueJob job) {
  const auto* bias = static_cast<const Storage*>(job.bias);
  auto* out = static_cast<Storage*>(job.out);
  for (int64_t i = FirstIndex(); i < job.loop.size; i += IndexStep()) {
    float x = job.product[i];
    if (bias != nullptr) {
      int64_t offset[1];
      job.loop.Offsets(i, offset);
      x += Load(bias[offset[0]]);
    }
    out[i] = Store<Storage>(Activation()(x));
  }
}

template <typename Activation>
struct Family {
  template <typename Storage>
  static cudaError_t Launch(const LinearEpilogueJob& job, cudaStream_t stream) {
    return LaunchKernel(LinearEpilogueKernelFor<Activation, Storage>, GridSize(job.loop.size),
                        kThreads, stream, job);
  }
};

template <typename Activation>
constexpr ByDType<LinearEpilogueLauncher> Launchers() {
  return LaunchersFor<LinearEpilogueLauncher, Family<Activation>>(Types<Half, BFloat16>());
}

constexpr LinearEpilogueKernel kKernels[] = {
    {"none", Launchers<Identity>()}, {"relu", Launchers<Relu>()},
    {"gelu", Launchers<GeluErf>()},  {"gelu_tanh", Launchers<GeluTanh>()},
    {"silu", Launchers<Silu>()},     {"sigmoid", Launchers<Sigmoid>()},
    {"tanh", Launchers<Tanh>()},
};

}  // namespace

std::span<const LinearEpilogueKernel> LinearEpilogueKernels() { return kKernels; }

}  // namespace tensord::server::cuda
