// The division of an upload among connections.
#include "tensord/client/internal/upload_plan.h"
#include "tensord/tests/mib.h"

#include <gtest/gtest.h>

#include <optional>
#include <thread>
#include <utility>
#include <vector>

namespace tensord::internal {
namespace {

// Takes chunks until there are none, and returns the ranges that they cover.
std::vector<std::pair<int64_t, int64_t>> TakeChunks(UploadPlan* plan) {
  std::vector<std::pair<int64_t, int64_t>> ranges;
  while (const std::optional<ByteRange> chunk = plan->NextChunk()) {
    EXPECT_GT(chunk->end, chunk->begin);
    EXPECT_LE(chunk->end - chunk->begin, kChunkBytes);
    if (ranges.empty() || ranges.back().second != chunk->begin) {
      ranges.push_back({chunk->begin, chunk->begin});
    }
    ranges.back().second = chunk->end;
  }
  return ranges;
}

using Ranges = std::vector<std::pair<int64_t, int64_t>>;

TEST(UploadPlanTest, MainConnectionSendsAllWithoutParts) {
  const int64_t size = 3 * kMiB + 17;
  UploadPlan plan(size);
  EXPECT_EQ(TakeChunks(&plan), (Ranges{{0, size}}));
  EXPECT_EQ(plan.sent_bytes(), size);
  plan.Restart(100);
  EXPECT_EQ(TakeChunks(&plan), (Ranges{{100, size}}));
  UploadPlan empty(0);
  EXPECT_FALSE(empty.NextChunk().has_value());
}

TEST(UploadPlanTest, PartsAreTakenFromTheEnd) {
  UploadPlan plan(100 * kMiB);
  const auto first = plan.TakePart(/*connections=*/2);
  const auto second = plan.TakePart(/*connections=*/2);
  ASSERT_TRUE(first.has_value() && second.has_value());
  EXPECT_EQ(first->end, 100 * kMiB);
  EXPECT_EQ(first->begin, 75 * kMiB);
  EXPECT_EQ(second->end, first->begin);
  EXPECT_LT(second->end - second->begin, first->end - first->begin);
  while (plan.TakePart(2).has_value()) {
  }
  EXPECT_TRUE(plan.NextChunk().has_value()) << "the main connection has work left";
}

TEST(UploadPlanTest, MainConnectionSkipsSentPartsAndSendsFailedOnes) {
  UploadPlan plan(64 * kMiB);
  const ByteRange last = *plan.TakePart(2);
  const ByteRange middle = *plan.TakePart(2);
  const ByteRange first = *plan.TakePart(2);
  plan.EndPart(last, /*sent=*/true);
  plan.EndPart(middle, /*sent=*/false);
  plan.EndPart(first, /*sent=*/true);
  EXPECT_EQ(TakeChunks(&plan), (Ranges{{0, first.begin}, {middle.begin, middle.end}}));
  EXPECT_EQ(plan.sent_bytes(), 64 * kMiB);
  plan.Restart(kMiB);
  EXPECT_EQ(plan.sent_bytes(), kMiB + (last.end - last.begin) + (first.end - first.begin));
  EXPECT_EQ(TakeChunks(&plan), (Ranges{{kMiB, first.begin}, {middle.begin, middle.end}}));
}

TEST(UploadPlanTest, MainConnectionWaitsForPartsUnderWay) {
  UploadPlan plan(32 * kMiB);
  const ByteRange part = *plan.TakePart(2);
  std::thread connection([&] {
    while (plan.sent_bytes() < part.begin - kChunkBytes) std::this_thread::yield();
    plan.EndPart(part, /*sent=*/false);
  });
  EXPECT_EQ(TakeChunks(&plan), (Ranges{{0, 32 * kMiB}}));
  connection.join();
}

TEST(UploadPlanTest, StartsWithTheFirstSentChunk) {
  UploadPlan plan(64 * kMiB);
  plan.NextChunk();
  plan.NextChunk();
  EXPECT_TRUE(plan.AwaitStart());
  plan.Restart(0);
  plan.Stop();
  EXPECT_FALSE(plan.AwaitStart());
}

TEST(UploadPlanTest, StopEndsParts) {
  UploadPlan plan(64 * kMiB);
  plan.Stop();
  EXPECT_TRUE(plan.stopped());
  EXPECT_FALSE(plan.TakePart(2).has_value());
  plan.Restart(0);
  EXPECT_TRUE(plan.TakePart(2).has_value());
}

}  // namespace
}  // namespace tensord::internal
