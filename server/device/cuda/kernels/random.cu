#include "tensord/server/device/cuda/kernels/random.h"

#include "tensord/server/device/cuda/kernels/launch.cuh"
#include "tensord/server/device/cuda/kernels/unit.h"
#include "tensord/server/device/random_math.h"

namespace tensord::server::cuda {
namespace {

// The number of elements of one block of the generator. float16 and bfloat16 elements are rounded
// float32 values.
template <typename T>
inline constexpr int kPerBlock = std::is_same_v<T, double> ? 2 : 4;

__device__ RandomStream StreamOf(const RandomSource& source) {
  if (source.state == nullptr) return source.stream;
  return {source.state[0], source.state[1]};
}

// A thread computes the elements of one block of the generator at a time.
template <typename T>
__global__ void UniformKernel(T* out, RandomSource source, UniformRange<MathOf<T>> range,
                              int64_t size) {
  constexpr int kCount = kPerBlock<T>;
  const RandomStream stream = StreamOf(source);
  for (int64_t b = FirstIndex(); b * kCount < size; b += IndexStep()) {
    const PhiloxBlock block = Philox(stream, static_cast<uint64_t>(b));
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
__global__ void NormalKernel(T* out, RandomSource source, double mean, double stddev,
                             int64_t size) {
  constexpr int kCount = kPerBlock<T>;
  const RandomStream stream = StreamOf(source);
  for (int64_t b = FirstIndex(); b * kCount < size; b += IndexStep()) {
    const PhiloxBlock block = Philox(stream, static_cast<uint64_t>(b));
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

template <typename T>
__global__ void RandintKernel(T* out, RandomSource source, RandintRange range, int64_t size) {
  const RandomStream stream = StreamOf(source);
  for (int64_t b = FirstIndex(); b * 2 < size; b += IndexStep()) {
    const PhiloxBlock block = Philox(stream, static_cast<uint64_t>(b));
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      const int64_t i = b * 2 + j;
      if (i < size) out[i] = static_cast<T>(UniformInteger(Word64(block, j), range));
    }
  }
}

// `in` and `out` aren't __restrict__, because `out` may be `in`.
template <typename T>
__global__ void DropoutKernel(const T* in, T* out, uint8_t* mask, RandomSource source,
                              DropoutRule rule, int64_t size) {
  const RandomStream stream = StreamOf(source);
  const auto keep = static_cast<MathOf<T>>(rule.keep);
  for (int64_t b = FirstIndex(); b * 4 < size; b += IndexStep()) {
    const PhiloxBlock block = Philox(stream, static_cast<uint64_t>(b));
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const int64_t i = b * 4 + j;
      if (i >= size) break;
      const bool kept = IsKept(block.word[j], rule.first_kept);
      out[i] = Store<T>(kept ? exact::Div(Load(in[i]), keep) : MathOf<T>{0});
      if (mask != nullptr) mask[i] = kept ? 1 : 0;
    }
  }
}

struct Uniform {
  template <typename T>
  static cudaError_t Launch(void* out, const RandomSource& source, double low, double high,
                            int64_t size, cudaStream_t stream) {
    UniformRange<MathOf<T>> range(static_cast<MathOf<T>>(low), static_cast<MathOf<T>>(high));
    if constexpr (sizeof(T) == 2) {
      range.highest = HighestBelow<T>(range.low, static_cast<float>(high));
    }
    const int64_t blocks = (size + kPerBlock<T> - 1) / kPerBlock<T>;
    return LaunchKernel(UniformKernel<T>, GridSize(blocks), kThreads, stream, static_cast<T*>(out),
                        source, range, size);
  }
};

struct Normal {
  template <typename T>
  static cudaError_t Launch(void* out, const RandomSource& source, double mean, double stddev,
                            int64_t size, cudaStream_t stream) {
    const int64_t blocks = (size + kPerBlock<T> - 1) / kPerBlock<T>;
    return LaunchKernel(NormalKernel<T>, GridSize(blocks), kThreads, stream, static_cast<T*>(out),
                        source, mean, stddev, size);
  }
};

struct Dropout {
  template <typename T>
  static cudaError_t Launch(const void* in, void* out, uint8_t* mask, const RandomSource& source,
                            const DropoutRule& rule, int64_t size, cudaStream_t stream) {
    return LaunchKernel(DropoutKernel<T>, GridSize((size + 3) / 4), kThreads, stream,
                        static_cast<const T*>(in), static_cast<T*>(out), mask, source, rule, size);
  }
};

constexpr ByDType<RandomLauncher> kUniform = LaunchersFor<RandomLauncher, Uniform>(FloatingTypes());
constexpr ByDType<RandomLauncher> kNormal = LaunchersFor<RandomLauncher, Normal>(FloatingTypes());
constexpr ByDType<DropoutLauncher> kDropout =
    LaunchersFor<DropoutLauncher, Dropout>(FloatingTypes());

}  // namespace

const ByDType<RandomLauncher>& UniformLaunchers() { return kUniform; }
const ByDType<RandomLauncher>& NormalLaunchers() { return kNormal; }
const ByDType<DropoutLauncher>& DropoutLaunchers() { return kDropout; }

cudaError_t LaunchRandint(void* out, int element_bytes, const RandomSource& source,
                          const RandintRange& range, int64_t size, cudaStream_t stream) {
  return WithUnit(element_bytes, [&](auto unit) {
    using T = decltype(unit);
    return LaunchKernel(RandintKernel<T>, GridSize((size + 1) / 2), kThreads, stream,
                        static_cast<T*>(out), source, range, size);
  });
}

}  // namespace tensord::server::cuda
