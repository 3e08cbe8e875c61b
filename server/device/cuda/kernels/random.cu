#include "tensord/server/device/cuda/kernels/creation.h"
#include "tensord/server/device/cuda/kernels/launch.cuh"
#include "tensord/server/device/random_math.h"

namespace tensord::server::cuda {
namespace {

// The number of elements of one block of the generator. float16 and bfloat16 elements are rounded
// float32 values.
template <typename T>
inline constexpr int kPerBlock = std::is_same_v<T, double> ? 2 : 4;

// A thread computes the elements of one block of the generator at a time.
template <typename T>
__global__ void UniformKernel(T* out, uint64_t seed, UniformRange<MathOf<T>> range, int64_t size) {
  constexpr int kCount = kPerBlock<T>;
  for (int64_t b = FirstIndex(); b * kCount < size; b += IndexStep()) {
    const PhiloxBlock block = Philox(seed, static_cast<uint64_t>(b));
#pragma unroll
    for (int j = 0; j < kCount; ++j) {
      const int64_t i = b * kCount + j;
      if (i >= size) break;
      if constexpr (std::is_same_v<T, double>) {
        out[i] = UniformDouble(Word64(block, j), range);
      } else {
        out[i] = Store<T>(UniformFloat(block.word[j], range));
      }
    }
  }
}

template <typename T>
__global__ void NormalKernel(T* out, uint64_t seed, double mean, double stddev, int64_t size) {
  constexpr int kCount = kPerBlock<T>;
  for (int64_t b = FirstIndex(); b * kCount < size; b += IndexStep()) {
    const PhiloxBlock block = Philox(seed, static_cast<uint64_t>(b));
#pragma unroll
    for (int j = 0; j < kCount; j += 2) {
      double z[2];
      if constexpr (std::is_same_v<T, double>) {
        NormalPair64(Word64(block, 0), Word64(block, 1), &z[0], &z[1]);
      } else {
        NormalPair32(block.word[j], block.word[j + 1], &z[0], &z[1]);
      }
#pragma unroll
      for (int k = 0; k < 2; ++k) {
        const int64_t i = b * kCount + j + k;
        if (i < size) {
          out[i] = Store<T>(static_cast<MathOf<T>>(ScaleNormal(z[k], mean, stddev)));
        }
      }
    }
  }
}

struct Uniform {
  template <typename T>
  static cudaError_t Launch(void* out, uint64_t seed, double low, double high, int64_t size,
                            cudaStream_t stream) {
    UniformRange<MathOf<T>> range(static_cast<MathOf<T>>(low), static_cast<MathOf<T>>(high));
    if constexpr (sizeof(T) == 2) {
      range.highest = HighestBelow<T>(range.low, static_cast<float>(high));
    }
    const int64_t blocks = (size + kPerBlock<T> - 1) / kPerBlock<T>;
    return LaunchKernel(UniformKernel<T>, GridSize(blocks), kThreads, stream, static_cast<T*>(out),
                        seed, range, size);
  }
};

struct Normal {
  template <typename T>
  static cudaError_t Launch(void* out, uint64_t seed, double mean, double stddev, int64_t size,
                            cudaStream_t stream) {
    const int64_t blocks = (size + kPerBlock<T> - 1) / kPerBlock<T>;
    return LaunchKernel(NormalKernel<T>, GridSize(blocks), kThreads, stream, static_cast<T*>(out),
                        seed, mean, stddev, size);
  }
};

constexpr ByDType<RandomLauncher> kUniform = LaunchersFor<RandomLauncher, Uniform>(FloatingTypes());
constexpr ByDType<RandomLauncher> kNormal = LaunchersFor<RandomLauncher, Normal>(FloatingTypes());

}  // namespace

const ByDType<RandomLauncher>& UniformLaunchers() { return kUniform; }
const ByDType<RandomLauncher>& NormalLaunchers() { return kNormal; }

}  // namespace tensord::server::cuda
