// The sizes of blocks and grids, for all kernels: those of kernels/ and those that NVRTC compiles.
#pragma once

#include <algorithm>
#include <cstdint>

namespace tensord::server::cuda {

inline constexpr int kThreadsLog2 = 8;
inline constexpr int kThreads = 1 << kThreadsLog2;  // of every one-dimensional block

// Returns the number of blocks that gives each item a thread, at most kMaxBlocks. Kernels loop with
// the size of the grid as step, so fewer threads than items suffice.
inline unsigned GridSize(int64_t items) {
  constexpr int64_t kMaxBlocks = 1 << 20;
  return static_cast<unsigned>(
      std::clamp<int64_t>((items + kThreads - 1) / kThreads, 1, kMaxBlocks));
}

}  // namespace tensord::server::cuda
