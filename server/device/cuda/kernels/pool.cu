// Pooling. A thread computes one element of the result. In the gradients, that is an element of gx:
// the thread adds up the windows that have the element, in order, so no atomics are needed.
#include "tensord/server/device/cuda/kernels/launch.cuh"
#include "tensord/server/device/cuda/kernels/pool.h"

namespace tensord::server::cuda {
namespace {

// The plane of an element, and its index there.
struct Place {
  int64_t plane;
  int64_t at[3];
};

__device__ Place PlaceOf(int64_t i, const int64_t (&size)[3]) {
  Place place;
  place.at[2] = i % size[2];
  i /= size[2];
  place.at[1] = i % size[1];
  i /= size[1];
  place.at[0] = i % size[0];
  place.plane = i / size[0];
  return place;
}

// Calls fn(position) for the elements of window `o`, in row-major order. Positions are in the
// plane.
template <typename Fn>
__device__ void ForElements(const PoolWindows& windows, const int64_t (&o)[3], Fn fn) {
  int64_t first[3], end[3], start[3];
  for (int a = 0; a < 3; ++a) {
    first[a] = windows.FirstTap(a, o[a]);
    end[a] = windows.EndTap(a, o[a]);
    start[a] = windows.Start(a, o[a]);
  }
  for (int64_t d = first[0]; d < end[0]; ++d) {
    for (int64_t h = first[1]; h < end[1]; ++h) {
      const int64_t base = ((start[0] + d * windows.dilation[0]) * windows.in[1] + start[1] +
                            h * windows.dilation[1]) *
                           windows.in[2];
      for (int64_t w = first[2]; w < end[2]; ++w) {
        fn(base + start[2] + w * windows.dilation[2]);
      }
    }
  }
}

// The windows that may have an element with the index i along an axis.
struct WindowRange {
  int64_t first, last;
};
__device__ WindowRange WindowsAround(const PoolWindows& windows, int axis, int64_t i) {
  const int64_t shifted = i + windows.padding[axis];
  const int64_t before = shifted - (windows.kernel[axis] - 1) * windows.dilation[axis];
  const int64_t stride = windows.stride[axis];
  return {before <= 0 ? 0 : (before + stride - 1) / stride,
          min(shifted / stride, windows.out[axis] - 1)};
}

// Calls fn(o, window) for the windows around the element `at`, in row-major order. With a dilation,
// some of them don't have it.
template <typename Fn>
__device__ void ForWindows(const PoolWindows& windows, const int64_t (&at)[3], Fn fn) {
  WindowRange range[3];
  for (int a = 0; a < 3; ++a) range[a] = WindowsAround(windows, a, at[a]);
  for (int64_t d = range[0].first; d <= range[0].last; ++d) {
    for (int64_t h = range[1].first; h <= range[1].last; ++h) {
      for (int64_t w = range[2].first; w <= range[2].last; ++w) {
        const int64_t o[3] = {d, h, w};
        fn(o, (d * windows.out[1] + h) * windows.out[2] + w);
      }
    }
  }
}

template <typename Storage>
__global__ void MaxPoolKernel(PoolJob job) {
  using T = MathOf<Storage>;
  const PoolWindows windows(job.geometry);
  const int64_t out = windows.out_elements(), in = windows.in_elements();
  for (int64_t i = FirstIndex(); i < job.planes * out; i += IndexStep()) {
    const Place place = PlaceOf(i, windows.out);
    const auto* x = static_cast<const Storage*>(job.from) + place.plane * in;
    T best = -static_cast<T>(INFINITY);
    int64_t at = -1, first = -1;
    ForElements(windows, place.at, [&](int64_t position) {
      if (first < 0) first = position;
      const T value = Load(x[position]);
      if (value > best || (value != value && best == best)) {
        best = value;
        at = position;
      }
    });
    static_cast<Storage*>(job.to)[i] = Store<Storage>(best);
    job.indices[i] = at < 0 ? first : at;
  }
}

template <typename Storage>
__global__ void MaxPoolBackwardKernel(PoolJob job) {
  using T = MathOf<Storage>;
  const PoolWindows windows(job.geometry);
  const int64_t out = windows.out_elements(), in = windows.in_elements();
  for (int64_t i = FirstIndex(); i < job.planes * in; i += IndexStep()) {
    const Place place = PlaceOf(i, windows.in);
    const auto* g = static_cast<const Storage*>(job.from) + place.plane * out;
    const int64_t* indices = job.indices + place.plane * out;
    const int64_t position = i - place.plane * in;
    T sum = 0;
    ForWindows(windows, place.at, [&](const int64_t(&)[3], int64_t window) {
      if (indices[window] == position) sum += Load(g[window]);
    });
    static_cast<Storage*>(job.to)[i] = Store<Storage>(sum);
  }
}

template <typename T>
__device__ T DivisorOf(const PoolJob& job, const PoolWindows& windows, const int64_t (&o)[3]) {
  if (job.divisor != 0) return static_cast<T>(job.divisor);
  int64_t count = 1;
  for (int a = 0; a < 3; ++a) count *= windows.Count(a, o[a], job.count_padding);
  return static_cast<T>(count);
}

template <typename Storage>
__global__ void AvgPoolKernel(PoolJob job) {
  using T = MathOf<Storage>;
  const PoolWindows windows(job.geometry);
  const int64_t out = windows.out_elements(), in = windows.in_elements();
  for (int64_t i = FirstIndex(); i < job.planes * out; i += IndexStep()) {
    const Place place = PlaceOf(i, windows.out);
    const auto* x = static_cast<const Storage*>(job.from) + place.plane * in;
    T sum = 0;
    ForElements(windows, place.at, [&](int64_t position) { sum += Load(x[position]); });
    static_cast<Storage*>(job.to)[i] = Store<Storage>(sum / DivisorOf<T>(job, windows, place.at));
  }
}

template <typename Storage>
__global__ void AvgPoolBackwardKernel(PoolJob job) {
  using T = MathOf<Storage>;
  const PoolWindows windows(job.geometry);
  const int64_t out = windows.out_elements(), in = windows.in_elements();
  for (int64_t i = FirstIndex(); i < job.planes * in; i += IndexStep()) {
    const Place place = PlaceOf(i, windows.in);
    const auto* g = static_cast<const Storage*>(job.from) + place.plane * out;
    T sum = 0;
    ForWindows(windows, place.at, [&](const int64_t(&o)[3], int64_t window) {
      sum += Load(g[window]) / DivisorOf<T>(job, windows, o);
    });
    static_cast<Storage*>(job.to)[i] = Store<Storage>(sum);
  }
}

// Launch a kernel. The first function starts a thread for each window, the second one for each
// element of x.
cudaError_t LaunchPerWindow(void (*kernel)(PoolJob), const PoolJob& job, cudaStream_t stream) {
  const int64_t count = job.planes * PoolWindows(job.geometry).out_elements();
  return LaunchKernel(kernel, GridSize(count), kThreads, stream, job);
}
cudaError_t LaunchPerElement(void (*kernel)(PoolJob), const PoolJob& job, cudaStream_t stream) {
  const int64_t count = job.planes * PoolWindows(job.geometry).in_elements();
  return LaunchKernel(kernel, GridSize(count), kThreads, stream, job);
}

struct MaxPoolFamily {
  template <typename Storage>
  static cudaError_t Launch(const PoolJob& job, cudaStream_t stream) {
    return LaunchPerWindow(MaxPoolKernel<Storage>, job, stream);
  }
};
struct MaxPoolBackwardFamily {
  template <typename Storage>
  static cudaError_t Launch(const PoolJob& job, cudaStream_t stream) {
    return LaunchPerElement(MaxPoolBackwardKernel<Storage>, job, stream);
  }
};
struct AvgPoolFamily {
  template <typename Storage>
  static cudaError_t Launch(const PoolJob& job, cudaStream_t stream) {
    return LaunchPerWindow(AvgPoolKernel<Storage>, job, stream);
  }
};
struct AvgPoolBackwardFamily {
  template <typename Storage>
  static cudaError_t Launch(const PoolJob& job, cudaStream_t stream) {
    return LaunchPerElement(AvgPoolBackwardKernel<Storage>, job, stream);
  }
};

constexpr PoolKernel kKernels[] = {
    {"max_pool", LaunchersFor<PoolLauncher, MaxPoolFamily>(FloatingTypes())},
    {"max_pool_backward", LaunchersFor<PoolLauncher, MaxPoolBackwardFamily>(FloatingTypes())},
    {"avg_pool", LaunchersFor<PoolLauncher, AvgPoolFamily>(FloatingTypes())},
    {"avg_pool_backward", LaunchersFor<PoolLauncher, AvgPoolBackwardFamily>(FloatingTypes())},
};

}  // namespace

std::span<const PoolKernel> PoolKernels() { return kKernels; }

}  // namespace tensord::server::cuda
