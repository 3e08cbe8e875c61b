// Launchers of searchsorted and nonzero.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "tensord/server/device/cuda/kernels/dispatch.h"
#include "tensord/server/device/cuda/kernels/strided_loop.h"

namespace tensord::server::cuda {

struct SearchJob {
  const void* sorted = nullptr;  // [rows][n]
  const void* x = nullptr;       // [rows][m]
  int64_t* out = nullptr;        // [rows][m]
  int64_t rows = 0;
  int64_t n = 0;
  int64_t m = 0;
  bool right = false;  // the index after equal elements, not before them
};
using SearchLauncher = cudaError_t (*)(const SearchJob& job, cudaStream_t stream);
const ByDType<SearchLauncher>& SearchLaunchers();

// Two kernels. In both, block b has the elements [b · chunk, (b + 1) · chunk). The first kernel
// counts those that aren't zero. In the second one, each block adds the counts of the blocks before
// it, and writes the indices of its elements.
struct NonzeroJob {
  static constexpr int kMaxBlocks = 1024;

  const void* in = nullptr;
  int64_t n = 0;      // > 0
  uint64_t mask = 0;  // an element isn't zero if it has one of these bits
  int blocks = 0;     // 1 .. kMaxBlocks
  int64_t chunk = 0;
  int64_t* counts = nullptr;  // [blocks]
  int64_t* out = nullptr;     // [rank][size]
  int64_t size = 0;
  int rank = 0;  // 1 .. kMaxLoopRank
  int64_t extent[kMaxLoopRank] = {};
  Divider divider[kMaxLoopRank];  // wide
};
cudaError_t LaunchNonzero(const NonzeroJob& job, int element_bytes, cudaStream_t stream);

}  // namespace tensord::server::cuda
