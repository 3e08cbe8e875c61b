#include <gtest/gtest.h>

#include "tensord/server/device/cuda/kernels/reduction.h"

namespace tensord::server::cuda {
namespace {

constexpr int kMultiprocessors = 108;

TEST(ReduceTileTest, SplitsALongReductionToOneResultOverManyBlocks) {
  const ReduceTile tile = PlanReduceTile(1, 1 << 24, true, kMultiprocessors);
  EXPECT_EQ(tile.lanes_log2, 8);
  EXPECT_GT(tile.splits, kMultiprocessors);
}

TEST(ReduceTileTest, LeavesManyResultsUnsplit) {
  EXPECT_EQ(PlanReduceTile(1 << 20, 1000, true, kMultiprocessors).splits, 1);
  EXPECT_EQ(PlanReduceTile(1 << 20, 1000, false, kMultiprocessors).splits, 1);
}

TEST(ReduceTileTest, KeepsNeighbouringColumnsTogether) {
  const ReduceTile tile = PlanReduceTile(4096, 4096, false, kMultiprocessors);
  EXPECT_FALSE(tile.lanes_fast);
  EXPECT_LE(tile.lanes_log2, 3);  // 32 columns or more of a block's 256 threads
}

TEST(ReduceTileTest, SplitsFewLongRowsOverEveryMultiprocessor) {
  for (int width : {2, 4, 8}) {
    EXPECT_GE(8 * PlanReduceTile(8, 128 << 10, true, 132, width).splits, 132) << width;
  }
}

TEST(ReduceTileTest, SplitsCoverEveryElement) {
  for (int64_t reduced : {0, 1, 5, 1000, 65537, 1 << 22}) {
    for (int64_t outputs : {1, 7, 300}) {
      for (int width : {1, 4, 16}) {
        const ReduceTile tile = PlanReduceTile(outputs, reduced, true, kMultiprocessors, width);
        EXPECT_GE(tile.splits * tile.chunk, reduced);
        EXPECT_EQ(tile.chunk % width, 0);
      }
    }
  }
}

}  // namespace
}  // namespace tensord::server::cuda
