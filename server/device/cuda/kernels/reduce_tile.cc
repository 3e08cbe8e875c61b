#include <algorithm>

#include "tensord/server/device/cuda/kernels/lines.h"
#include "tensord/server/device/cuda/kernels/reduction.h"

namespace tensord::server::cuda {
namespace {

constexpr int kBlockLog2 = 8;         // threads of a block
constexpr int kColumnsLog2 = 5;       // neighbouring outputs that fill a memory transaction
constexpr int64_t kLoadsPerLane = 4;  // with fewer, lanes mostly wait for the tree
// The minimum of a lane in each split: with fewer, a split costs more than it gains.
constexpr int64_t kElementsPerSplit = 16;
constexpr int64_t kLoadsPerSplit = 2;
constexpr int kBlocksPerMultiprocessor = 8;
constexpr int64_t kMaxSplits = 1024;

int CeilLog2(int64_t n) {
  int log2 = 0;
  while ((int64_t{1} << log2) < n) ++log2;
  return log2;
}

int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

}  // namespace

ReduceTile PlanReduceTile(int64_t outputs, int64_t reduced, bool lanes_fast, int multiprocessors,
                          int width) {
  ReduceTile tile;
  tile.lanes_fast = lanes_fast;
  const int columns_log2 = lanes_fast ? 0 : std::min(kColumnsLog2, CeilLog2(outputs));
  tile.lanes_log2 =
      std::min(kBlockLog2 - columns_log2, CeilLog2(CeilDiv(reduced, kLoadsPerLane * width)));
  const int64_t lanes = int64_t{1} << tile.lanes_log2;
  const int64_t outputs_per_block = int64_t{1} << (kBlockLog2 - tile.lanes_log2);
  const int64_t blocks = CeilDiv(outputs, outputs_per_block);
  const int64_t wanted = CeilDiv(int64_t{kBlocksPerMultiprocessor} * multiprocessors, blocks);
  const int64_t per_split = std::max(kElementsPerSplit, kLoadsPerSplit * width);
  const int64_t worthwhile = CeilDiv(reduced, lanes * per_split);
  tile.splits = static_cast<int>(std::clamp(std::min(wanted, worthwhile), int64_t{1}, kMaxSplits));
  tile.chunk = CeilDiv(CeilDiv(reduced, tile.splits), width) * width;
  return tile;
}

void PlanLines(LineLoop& lines, int multiprocessors) {
  if (lines.count() == 0) return;
  lines.tile =
      PlanReduceTile(lines.count(), lines.extent, /*lanes_fast=*/lines.inner == 1, multiprocessors);
  lines.tile.splits = 1;
  lines.tile.chunk = lines.extent;
}

}  // namespace tensord::server::cuda
