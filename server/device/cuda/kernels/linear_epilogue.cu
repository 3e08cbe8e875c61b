#include "tensord/server/device/cuda/kernels/linear_epilogue.h"

#include "tensord/server/device/cuda/kernels/broadcast.cuh"

namespace tensord::server::cuda {
namespace {

struct Identity {
  __device__ float operator()(float x) const { return x; }
};

// The number of elements in a pack. A pack has 16 bytes of the result, or 32 bytes of the product.
constexpr int kWidth = 8;

template <typename Activation, typename Storage>
__device__ Storage Finish(float product, float bias) {
  return Store<Storage>(Activation()(product + bias));
}

// Sets `bias` to the bias of the elements [at, at + count) of the result. If the op has no bias,
// sets it to 0.
template <typename Storage, int count>
__device__ void LoadBias(const LinearEpilogueJob& job, int64_t at, float (&bias)[count]) {
  const auto* in = static_cast<const Storage*>(job.bias);
  if (in == nullptr) {
#pragma unroll
    for (float& b : bias) b = 0;
    return;
  }
  const int last = job.loop.rank - 1;
  int64_t offset[1];
  if (job.loop.Offsets(at, offset) <= job.loop.extent[last] - count) {
    const auto run = LoadRun<count>(in + offset[0], job.loop.stride[0][last]);
#pragma unroll
    for (int j = 0; j < count; ++j) bias[j] = Load(run.value[j]);
    return;
  }
  for (int j = 0; j < count; ++j) {  // the pack crosses the end of a row
    job.loop.Offsets(at + j, offset);
    bias[j] = Load(in[offset[0]]);
  }
}

// The threads compute the first `packs` packs, then the remaining elements one by one.
template <typename Activation, typename Storage>
__global__ void LinearEpilogueKernelFor(LinearEpilogueJob job, int64_t packs) {
  auto* out = static_cast<Storage*>(job.out);
  for (int64_t i = FirstIndex(); i < packs; i += IndexStep()) {
    const auto* product = reinterpret_cast<const Pack<float, kWidth / 2>*>(job.product) + 2 * i;
    const Pack<float, kWidth / 2> low = product[0], high = product[1];
    float bias[kWidth];
    LoadBias<Storage>(job, i * kWidth, bias);
    Pack<Storage, kWidth> pack;
#pragma unroll
    for (int j = 0; j < kWidth / 2; ++j) {
      pack.value[j] = Finish<Activation, Storage>(low.value[j], bias[j]);
      pack.value[j + kWidth / 2] = Finish<Activation, Storage>(high.value[j], bias[j + kWidth / 2]);
    }
    reinterpret_cast<Pack<Storage, kWidth>*>(out)[i] = pack;
  }
  for (int64_t i = packs * kWidth + FirstIndex(); i < job.loop.size; i += IndexStep()) {
    float bias[1];
    LoadBias<Storage>(job, i, bias);
    out[i] = Finish<Activation, Storage>(job.product[i], bias[0]);
  }
}

template <typename Activation>
struct Family {
  template <typename Storage>
  static cudaError_t Launch(const LinearEpilogueJob& job, cudaStream_t stream) {
    const int64_t size = job.loop.size;
    const bool aligned = AlignedForPacks(job.product, static_cast<const Storage*>(job.out));
    const int64_t packs = aligned ? size / kWidth : 0;
    return LaunchKernel(LinearEpilogueKernelFor<Activation, Storage>,
                        GridSize(std::max(packs, size - packs * kWidth)), kThreads, stream, job,
                        packs);
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
