#include "tensord/server/device/cuda/kernels/creation.h"
#include "tensord/server/device/cuda/kernels/launch.cuh"
#include "tensord/server/device/cuda/kernels/unit.h"

namespace tensord::server::cuda {
namespace {

template <typename T>
__global__ void FillKernel(T* out, T value, int64_t size, int64_t pitch) {
  for (int64_t i = FirstIndex(); i < size; i += IndexStep()) out[i * pitch] = value;
}

template <typename T>
cudaError_t Fill(void* out, T value, int64_t size, int64_t pitch, cudaStream_t stream) {
  return LaunchKernel(FillKernel<T>, GridSize(size), kThreads, stream, static_cast<T*>(out), value,
                      size, pitch);
}

template <typename T>
__global__ void ArangeKernel(T* out, ArangeJob job, int64_t size) {
  for (int64_t i = FirstIndex(); i < size; i += IndexStep()) {
    MathOf<T> value;
    if (job.integral) {
      value = CastTo<MathOf<T>>()(Add()(job.int_start, Mul()(i, job.int_step)));
    } else {
      // Product and sum aren't fused, so that all devices compute the same numbers.
      const double product = __dmul_rn(static_cast<double>(i), job.float_step);
      value = CastTo<MathOf<T>>()(__dadd_rn(job.float_start, product));
    }
    out[i] = Store<T>(value);
  }
}

struct Arange {
  template <typename T>
  static cudaError_t Launch(void* out, const ArangeJob& job, int64_t size, cudaStream_t stream) {
    return LaunchKernel(ArangeKernel<T>, GridSize(size), kThreads, stream, static_cast<T*>(out),
                        job, size);
  }
};

constexpr ByDType<ArangeLauncher> kArange = LaunchersFor<ArangeLauncher, Arange>(AllTypes());

}  // namespace

cudaError_t LaunchFill(void* out, ElementBits value, int64_t size, int64_t pitch,
                       cudaStream_t stream) {
  if (value.bits == 0 && pitch == 1) return cudaMemsetAsync(out, 0, size * value.bytes, stream);
  if (value.bytes == 16) {
    const uint4 element = {static_cast<uint32_t>(value.bits),
                           static_cast<uint32_t>(value.bits >> 32), 0, 0};
    return Fill(out, element, size, pitch, stream);
  }
  return WithUnit(value.bytes, [&]<typename T>(T) {
    return Fill(out, static_cast<T>(value.bits), size, pitch, stream);
  });
}

const ByDType<ArangeLauncher>& ArangeLaunchers() { return kArange; }

}  // namespace tensord::server::cuda
