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
// Blocks until the grid has ended. If the kernel misuses barriers, stops the grid and returns a
// description of the misuse. Otherwise returns an empty string.
std::string RunGrid(dim3 grid, dim3 block, const std::function<void()>& thread);

// Discards the state of a grid whose RunGrid() was left by siglongjmp(). Must be called before the
// next RunGrid() of this OS thread. Doesn't destroy the objects on the fibers' stacks.
void AbandonGrid();

}  // namespace tensord::cuda_emulation
