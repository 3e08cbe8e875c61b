// Runs the blocks of a grid one after another on the calling OS thread. The threads of a block are
// fibers: one fiber runs thread after thread until one of them waits at a barrier, so a kernel
// without barriers is a plain loop.
#pragma once

#include <vector_types.h>

#include <functional>
#include <string>

namespace tensord::cuda_emulation {

inline constexpr int kWarpThreads = 32;

// Runs `thread` once for each CUDA thread, with threadIdx and the other built-in variables set.
// Returns what the kernel did wrong with barriers; empty if nothing. Afterwards, or after a jump
// out of RunGrid(), the calling OS thread may run another grid.
std::string RunGrid(dim3 grid, dim3 block, const std::function<void()>& thread);

// To be called after a jump out of RunGrid().
void AbandonGrid();

}  // namespace tensord::cuda_emulation
