#include "tensord/server/rpc/peer/pull_progress.h"

#include <gtest/gtest.h>

namespace tensord::server {
namespace {

TEST(PullProgressTest, BeginsEmpty) {
  PullProgress progress;
  EXPECT_FALSE(progress.begun());
  EXPECT_EQ(progress.bytes(), 0);
  EXPECT_EQ(progress.duration().count(), 0);
  EXPECT_FALSE(progress.mostly_shared());
  progress.Begin();
  EXPECT_TRUE(progress.begun());
  EXPECT_EQ(progress.duration().count(), 0) << "no byte has been stored";
}

TEST(PullProgressTest, CountsBytesOfBothRoutes) {
  PullProgress progress;
  progress.Begin();
  progress.Add(10, /*shared=*/false);
  EXPECT_FALSE(progress.mostly_shared());
  progress.Add(10, /*shared=*/true);
  EXPECT_FALSE(progress.mostly_shared()) << "half of the bytes";
  progress.Add(1, /*shared=*/true);
  EXPECT_TRUE(progress.mostly_shared());
  EXPECT_EQ(progress.bytes(), 21);
}

TEST(PullProgressTest, MeasuresFromTheFirstBeginToTheLastBytes) {
  PullProgress progress;
  const auto before = PullProgress::Clock::now();
  progress.Begin();
  progress.Add(1, /*shared=*/false);
  const auto first = progress.duration();
  progress.Begin();
  progress.Add(1, /*shared=*/false);
  EXPECT_GE(progress.duration(), first);
  EXPECT_LE(progress.duration(), progress.last_byte() - before);
}

}  // namespace
}  // namespace tensord::server
