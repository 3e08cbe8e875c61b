#include "tensord/server/device/cuda/kernels/value_check.h"

#include "tensord/server/device/cuda/kernels/launch.cuh"

namespace tensord::server::cuda {
namespace {

// Must be launched with one block.
__global__ void CollectChecksKernel(GraphCheckCell* cells, int count, CheckCell to) {
  __shared__ int first_of_thread[kThreads];
  const int thread = static_cast<int>(threadIdx.x);
  int first = count;
  for (int i = thread; i < count && first == count; i += kThreads) {
    if (cells[i].guard.key != 0) first = i;
  }
  first_of_thread[thread] = first;
  __syncthreads();
  if (thread == 0 && to.record != nullptr) {
    for (int i = 1; i < kThreads; ++i) first = min(first, first_of_thread[i]);
    if (first < count) {
      *to.record = cells[first].record;
      to.record->step = first;
    }
  }
  __syncthreads();
  for (int i = thread; i < count; i += kThreads) cells[i] = GraphCheckCell{};
}

}  // namespace

cudaError_t LaunchCollectChecks(GraphCheckCell* cells, int count, CheckCell to,
                                cudaStream_t stream) {
  return LaunchKernel(CollectChecksKernel, 1, kThreads, stream, cells, count, to);
}

}  // namespace tensord::server::cuda
