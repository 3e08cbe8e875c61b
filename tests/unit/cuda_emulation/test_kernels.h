// Kernels for the emulation's tests, and the launches that run them. A launch returns what
// cuda_emulation::Launch() returns.
#pragma once

#include <cuda_runtime_api.h>

namespace tensord::cuda_emulation {

inline constexpr int kThreads = 64;  // threads of every block

// out[i] = value for 0 <= i < size; one block.
cudaError_t LaunchFill(int* out, int size, int value, cudaStream_t stream);

// out[i] = 1 for 0 <= i < size; a grid of `blocks` blocks of `threads` threads.
cudaError_t LaunchFillWith(unsigned blocks, unsigned threads, int* out, int size,
                           cudaStream_t stream);

// out[i] = value for 0 <= i < 4 * packs; one block. Each store is of 16 bytes.
cudaError_t LaunchFillPacks(int* out, int packs, int value, cudaStream_t stream);

// out[0] = the sum of in[0, kThreads), by a tree in shared memory with a barrier after each step.
// If `with_barriers` is false, the kernel lacks them.
cudaError_t LaunchTreeSum(const int* in, int* out, bool with_barriers, cudaStream_t stream);

// out[warp] = the sum of the warp's elements of in[0, kThreads), by shuffles.
cudaError_t LaunchWarpSum(const int* in, int* out, cudaStream_t stream);

// Half of the threads return before the barrier that the others wait at.
cudaError_t LaunchDivergentBarrier(cudaStream_t stream);

}  // namespace tensord::cuda_emulation
