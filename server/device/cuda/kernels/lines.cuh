// The division of elements among the threads of kernels over lines (lines.h).
#pragma once

#include "tensord/server/device/cuda/kernels/lines.h"
#include "tensord/server/device/cuda/kernels/reduction.cuh"

namespace tensord::server::cuda {

// The elements that a thread computes: every `at.lanes`-th element of one line.
struct LineShare {
  TilePosition at;
  int64_t line;    // the number of the line, in row-major order of (outer, inner)
  bool inside;     // false if there is no such line
  int64_t base;    // the position of the line's first element
  int64_t extent;  // 0 if there is no such line
  int64_t inner;

  __device__ explicit LineShare(const LineLoop& lines)
      : at(lines.tile),
        line(static_cast<int64_t>(blockIdx.x) * at.outputs + at.output),
        inside(line < lines.outer * lines.inner),
        base(inside ? line / lines.inner * lines.extent * lines.inner + line % lines.inner : 0),
        extent(inside ? lines.extent : 0),
        inner(lines.inner) {}

  __device__ bool is_first() const { return inside && at.lane == 0; }

  // Calls fn(i, position) for the elements of the thread. `i` is the index along the axis.
  template <typename Fn>
  __device__ void ForEach(Fn fn) const {
    for (int64_t i = at.lane; i < extent; i += at.lanes) fn(i, base + i * inner);
  }

  // Returns the sum of fn(i, position) over the whole line to all its threads. All threads of the
  // block must call it. `shared` has one element for each thread.
  template <typename T, typename Fn>
  __device__ T Sum(T* shared, Fn fn) const {
    T sum = 0;
    ForEach([&](int64_t i, int64_t position) { sum += fn(i, position); });
    __syncthreads();  // an earlier use of `shared` has ended
    return CombineLanes(sum, at, shared, [](T a, T b) { return a + b; });
  }
};

// Launches a kernel that takes a job. The job has the member `lines`.
template <typename Job>
cudaError_t LaunchOverLines(void (*kernel)(Job), const Job& job, cudaStream_t stream) {
  const int64_t blocks = TileCount(job.lines.count(), job.lines.tile);
  if (blocks > kMaxGridX) return cudaErrorInvalidConfiguration;
  return LaunchKernel(kernel, static_cast<unsigned>(blocks), kThreads, stream, job);
}

}  // namespace tensord::server::cuda
