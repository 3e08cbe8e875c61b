#include "tensord/server/device/cuda/kernels/launch.cuh"
#include "tensord/server/device/cuda/kernels/scan.h"

namespace tensord::server::cuda {
namespace {

constexpr int kItems = 8;  // neighbouring elements that a thread takes at a time

struct SumOp {
  template <typename Acc>
  __device__ static Acc Identity() {
    return Acc{0};
  }
  template <typename Acc>
  __device__ static Acc Combine(Acc a, Acc b) {
    return a + b;
  }
};

struct ProdOp {
  template <typename Acc>
  __device__ static Acc Identity() {
    return Acc{1};
  }
  template <typename Acc>
  __device__ static Acc Combine(Acc a, Acc b) {
    return a * b;
  }
};

template <typename T>
using AccOf = std::conditional_t<std::is_floating_point_v<MathOf<T>>, double, uint64_t>;

// If a line has several chunks, there are three launches: kResults computes the result of each
// chunk, ScanCarriesKernel turns the results into carries, and kScan scans the chunks.
enum class Part { kResults, kScan };

__device__ inline int64_t Position(const ScanJob& job, int64_t i) {
  return job.reverse ? job.extent - 1 - i : i;
}

template <typename Op, typename Acc>
__device__ Acc FirstCarry(const ScanJob& job, Part part, int64_t line) {
  if (part == Part::kResults || job.chunks == 1) return Op::template Identity<Acc>();
  return static_cast<const Acc*>(job.carries)[line * job.chunks + blockIdx.y];
}

// Each thread scans the chunk blockIdx.y of one line.
template <typename T, typename Op>
__global__ void ScanByThreads(ScanJob job, Part part) {
  using Acc = AccOf<T>;
  const int64_t lines = job.outer * job.inner;
  for (int64_t line = FirstIndex(); line < lines; line += IndexStep()) {
    const int64_t base = line / job.inner * job.extent * job.inner + line % job.inner;
    const T* in = static_cast<const T*>(job.in) + base;
    T* out = static_cast<T*>(job.out) + base;
    Acc carry = FirstCarry<Op, Acc>(job, part, line);
    const int64_t begin = blockIdx.y * job.chunk;
    const int64_t end = min(begin + job.chunk, job.extent);
    for (int64_t i = begin; i < end; ++i) {
      const int64_t at = Position(job, i) * job.inner;
      const Acc next = Op::Combine(carry, static_cast<Acc>(Load(in[at])));
      if (part == Part::kScan) {
        out[at] = Store<T>(static_cast<MathOf<T>>(job.exclusive ? carry : next));
      }
      carry = next;
    }
    if (part == Part::kResults) {
      static_cast<Acc*>(job.carries)[line * job.chunks + blockIdx.y] = carry;
    }
  }
}

// Combines the values of the threads before this one, and returns the result. Sets `all` to the
// result of all threads (Hillis and Steele, "Data parallel algorithms", 1986). All threads of the
// block must call it. `shared` has one element for each thread, and may be used again after the
// call.
template <typename Op, typename Acc>
__device__ Acc ScanThreads(Acc value, Acc* shared, Acc* all) {
  const int thread = static_cast<int>(threadIdx.x);
  shared[thread] = value;
  __syncthreads();
  for (int step = 1; step < kThreads; step *= 2) {
    const Acc before = thread >= step ? shared[thread - step] : Op::template Identity<Acc>();
    __syncthreads();
    if (thread >= step) shared[thread] = Op::Combine(before, shared[thread]);
    __syncthreads();
  }
  const Acc before = thread > 0 ? shared[thread - 1] : Op::template Identity<Acc>();
  *all = shared[kThreads - 1];
  __syncthreads();
  return before;
}

// Each block scans the chunk blockIdx.y of the row blockIdx.x.
template <typename T, typename Op>
__global__ void ScanByBlocks(ScanJob job, Part part) {
  using Acc = AccOf<T>;
  __shared__ Acc shared[kThreads];
  const int64_t row = blockIdx.x;
  const T* in = static_cast<const T*>(job.in) + row * job.extent;
  T* out = static_cast<T*>(job.out) + row * job.extent;
  Acc carry = FirstCarry<Op, Acc>(job, part, row);
  const int64_t begin = blockIdx.y * job.chunk;
  const int64_t end = min(begin + job.chunk, job.extent);
#pragma unroll 1
  for (int64_t tile = begin; tile < end; tile += kThreads * kItems) {
    const int64_t first = tile + static_cast<int64_t>(threadIdx.x) * kItems;
    Acc item[kItems];
    Acc own = Op::template Identity<Acc>();
#pragma unroll
    for (int j = 0; j < kItems; ++j) {
      item[j] = first + j < end ? static_cast<Acc>(Load(in[Position(job, first + j)]))
                                : Op::template Identity<Acc>();
      own = Op::Combine(own, item[j]);
    }
    Acc all;
    Acc running = Op::Combine(carry, ScanThreads<Op>(own, shared, &all));
    carry = Op::Combine(carry, all);
    if (part == Part::kResults) continue;
#pragma unroll
    for (int j = 0; j < kItems; ++j) {
      const Acc next = Op::Combine(running, item[j]);
      if (first + j < end) {
        out[Position(job, first + j)] =
            Store<T>(static_cast<MathOf<T>>(job.exclusive ? running : next));
      }
      running = next;
    }
  }
  if (part == Part::kResults && threadIdx.x == 0) {
    static_cast<Acc*>(job.carries)[row * job.chunks + blockIdx.y] = carry;
  }
}

// Replaces the results of a line's chunks by the chunks' carries. Each block takes one line.
template <typename Acc, typename Op>
__global__ void ScanCarriesKernel(Acc* carries, int chunks) {
  __shared__ Acc shared[kThreads];
  const int thread = static_cast<int>(threadIdx.x);
  Acc* mine = carries + static_cast<int64_t>(blockIdx.x) * chunks + thread;
  const Acc value = thread < chunks ? *mine : Op::template Identity<Acc>();
  Acc all;
  const Acc carry = ScanThreads<Op>(value, shared, &all);
  if (thread < chunks) *mine = carry;
}

template <typename Op>
struct ScanFamily {
  template <typename T>
  static cudaError_t Launch(const ScanJob& job, cudaStream_t stream) {
    const int64_t lines = job.outer * job.inner;
    if (job.blocks && lines > kMaxGridX) return cudaErrorInvalidConfiguration;
    const dim3 grid(job.blocks ? static_cast<unsigned>(lines) : GridSize(lines), job.chunks);
    const auto launch = [&](Part part) {
      return LaunchKernel(job.blocks ? ScanByBlocks<T, Op> : ScanByThreads<T, Op>, grid, kThreads,
                          stream, job, part);
    };
    if (job.chunks == 1) return launch(Part::kScan);
    cudaError_t error = launch(Part::kResults);
    if (error != cudaSuccess) return error;
    error = LaunchKernel(ScanCarriesKernel<AccOf<T>, Op>, static_cast<unsigned>(lines), kThreads,
                         stream, static_cast<AccOf<T>*>(job.carries), job.chunks);
    return error != cudaSuccess ? error : launch(Part::kScan);
  }
};

constexpr ScanKernel kKernels[] = {
    {"cumsum", LaunchersFor<ScanLauncher, ScanFamily<SumOp>>(NumericTypes())},
    {"cumprod", LaunchersFor<ScanLauncher, ScanFamily<ProdOp>>(NumericTypes())},
};

}  // namespace

std::span<const ScanKernel> ScanKernels() { return kKernels; }

}  // namespace tensord::server::cuda
