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

}  // namespace

LinearEpilogueLauncher FindLinearEpilogue(std::optional<UnaryFunction> activation,
                                          int dtype_number) {
  static constexpr auto kIdentity = Launchers<Identity>();
  if (!activation.has_value()) return kIdentity[dtype_number];
  switch (*activation) {
#define TENSORD_CASE(name, Function, typing, cost, doc)       \
  case UnaryFunction::k##Function: {                          \
    static constexpr auto kLaunchers = Launchers<Function>(); \
    return kLaunchers[dtype_number];                          \
  }
    TENSORD_ACTIVATIONS(TENSORD_CASE)
#undef TENSORD_CASE
    default:
      return nullptr;
  }
}

}  // namespace tensord::server::cuda
