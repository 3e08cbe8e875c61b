// Launchers of scans over the middle of three axes (outer, extent, inner).
//
// The elements of an axis are a line. If there are few lines, each is divided into chunks: a first
// kernel computes the result of each chunk, a second one scans these results, and a third one scans
// the chunks. The order of operations is fixed, so the same input always gives the same bits.
// Floating dtypes are accumulated in double, and integers modulo 2^64.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <span>

#include "tensord/server/device/cuda/kernels/dispatch.h"
#include "tensord/server/device/cuda/kernels/grid.h"

namespace tensord::server::cuda {

inline constexpr int kMaxScanChunks = kThreads;  // of a line: one block scans their results

struct ScanJob {
  const void* in = nullptr;
  void* out = nullptr;
  int64_t outer = 1, extent = 1, inner = 1;
  bool exclusive = false;
  bool reverse = false;
  bool blocks = false;      // true: a block scans a chunk, and inner is 1; false: a thread does
  int chunks = 1;           // at most kMaxScanChunks
  int64_t chunk = 0;        // the number of elements of a chunk, except the last
  void* carries = nullptr;  // if chunks > 1: kCarryBytes for each chunk of each line
};
inline constexpr int64_t kCarryBytes = 8;

using ScanLauncher = cudaError_t (*)(const ScanJob& job, cudaStream_t stream);

// A scan, with a launcher for each dtype. The input and the result have the same dtype.
struct ScanKernel {
  const char* op;
  ByDType<ScanLauncher> by_dtype;
};
std::span<const ScanKernel> ScanKernels();  // cumsum cumprod

}  // namespace tensord::server::cuda
