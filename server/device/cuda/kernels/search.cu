#include "tensord/server/device/cuda/kernels/search.h"

#include "tensord/server/device/cuda/kernels/launch.cuh"
#include "tensord/server/device/cuda/kernels/unit.h"
#include "tensord/server/device/sort_key.h"

namespace tensord::server::cuda {
namespace {

// ---------------------------------------------------------------- searchsorted

template <typename T>
__global__ void SearchKernel(SearchJob job, Divider by_m) {
  const int64_t size = job.rows * job.m;
  for (int64_t i = FirstIndex(); i < size; i += IndexStep()) {
    const int64_t row = job.rows == 1 ? 0 : static_cast<int64_t>(by_m.DivideWide(i));
    const T* sorted = static_cast<const T*>(job.sorted) + row * job.n;
    const SortKey<T> key = SortKeyOf(static_cast<const T*>(job.x)[i]);
    int64_t first = 0, n = job.n;
    while (n > 0) {
      const int64_t half = n / 2;
      const SortKey<T> middle = SortKeyOf(sorted[first + half]);
      if (middle < key || (job.right && middle == key)) {
        first += half + 1;
        n -= half + 1;
      } else {
        n = half;
      }
    }
    job.out[i] = first;
  }
}

struct Search {
  template <typename T>
  static cudaError_t Launch(const SearchJob& job, cudaStream_t stream) {
    return LaunchKernel(SearchKernel<T>, GridSize(job.rows * job.m), kThreads, stream, job,
                        Divider(job.m, false));
  }
};

constexpr ByDType<SearchLauncher> kSearch = LaunchersFor<SearchLauncher, Search>(NumericTypes());

// ---------------------------------------------------------------- nonzero

constexpr int kThreadElements = 8;  // that a thread reads between two scans of the block

// Returns the sum of the threads' values to all threads of the block, which must all call it.
__device__ int64_t BlockSum(int64_t value) {
  __shared__ int64_t partial[kThreads];
  __syncthreads();  // an earlier sum has been read
  partial[threadIdx.x] = value;
  for (unsigned half = kThreads / 2; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.x < half) partial[threadIdx.x] += partial[threadIdx.x + half];
  }
  __syncthreads();
  return partial[0];
}

// Returns the sum of the values of the threads before the calling one. Sets `total` to the sum of
// all values. All threads of the block must call it.
__device__ int BlockScan(int value, int* total) {
  __shared__ int sums[kThreads];
  __syncthreads();  // an earlier scan has been read
  sums[threadIdx.x] = value;
  for (unsigned step = 1; step < kThreads; step *= 2) {
    __syncthreads();
    const int before = threadIdx.x >= step ? sums[threadIdx.x - step] : 0;
    __syncthreads();
    sums[threadIdx.x] += before;
  }
  __syncthreads();
  *total = sums[kThreads - 1];
  return sums[threadIdx.x] - value;
}

template <typename Unit>
__global__ void CountNonzeroKernel(NonzeroJob job) {
  const auto* in = static_cast<const Unit*>(job.in);
  const int64_t begin = blockIdx.x * job.chunk, end = min(begin + job.chunk, job.n);
  int64_t count = 0;
  for (int64_t i = begin + threadIdx.x; i < end; i += kThreads) {
    count += (in[i] & job.mask) != 0 ? 1 : 0;
  }
  count = BlockSum(count);
  if (threadIdx.x == 0) job.counts[blockIdx.x] = count;
}

// Writes the indices of an element to a column of the output.
__device__ void StoreIndices(const NonzeroJob& job, int64_t element, int64_t column) {
  for (int axis = job.rank - 1; axis > 0; --axis) {
    const auto quotient = static_cast<int64_t>(job.divider[axis].DivideWide(element));
    job.out[axis * job.size + column] = element - quotient * job.extent[axis];
    element = quotient;
  }
  job.out[column] = element;
}

template <typename Unit>
__global__ void StoreNonzeroKernel(NonzeroJob job) {
  const auto* in = static_cast<const Unit*>(job.in);
  int64_t before = 0, all = 0;
  for (int b = threadIdx.x; b < job.blocks; b += kThreads) {
    before += b < static_cast<int>(blockIdx.x) ? job.counts[b] : 0;
    all += job.counts[b];
  }
  before = BlockSum(before);
  all = BlockSum(all);
  const int64_t end = min((blockIdx.x + 1) * job.chunk, job.n);
  for (int64_t at = blockIdx.x * job.chunk; at < end && before < job.size;
       at += kThreads * kThreadElements) {
    const int64_t first = at + threadIdx.x * kThreadElements;
    const int64_t last = min(first + kThreadElements, end);
    int count = 0, total = 0;
    for (int64_t i = first; i < last; ++i) count += (in[i] & job.mask) != 0 ? 1 : 0;
    int64_t column = before + BlockScan(count, &total);
    for (int64_t i = first; i < last; ++i) {
      if ((in[i] & job.mask) == 0) continue;
      if (column < job.size) StoreIndices(job, i, column);
      ++column;
    }
    before += total;
  }
  for (int64_t column = all + FirstIndex(); column < job.size; column += IndexStep()) {
    for (int axis = 0; axis < job.rank; ++axis) job.out[axis * job.size + column] = 0;
  }
}

}  // namespace

const ByDType<SearchLauncher>& SearchLaunchers() { return kSearch; }

cudaError_t LaunchNonzero(const NonzeroJob& job, int element_bytes, cudaStream_t stream) {
  return WithUnit(element_bytes, [&](auto unit) {
    using Unit = decltype(unit);
    const cudaError_t error =
        LaunchKernel(CountNonzeroKernel<Unit>, job.blocks, kThreads, stream, job);
    if (error != cudaSuccess) return error;
    return LaunchKernel(StoreNonzeroKernel<Unit>, job.blocks, kThreads, stream, job);
  });
}

}  // namespace tensord::server::cuda
