#include "tensord/server/rpc/peer/pull_retries.h"

#include <gtest/gtest.h>

namespace tensord::server {
namespace {

constexpr std::chrono::hours kLong(1);

TEST(PullRetriesTest, RetriesUntilTheSourceHasBeenUnreachableForTooLong) {
  PullRetries retries;
  retries.Restart();
  EXPECT_TRUE(retries.MayRetry(/*answered=*/false, /*bytes=*/0, kLong));
  EXPECT_FALSE(retries.MayRetry(/*answered=*/false, /*bytes=*/0, std::chrono::seconds(0)));
  EXPECT_EQ(retries.resumptions(), 0);
}

TEST(PullRetriesTest, GivesUpAfterManyAnswersWithoutBytes) {
  PullRetries retries;
  retries.Restart();
  int calls = 1;
  while (calls < 1000 && retries.MayRetry(/*answered=*/true, /*bytes=*/0, kLong)) ++calls;
  EXPECT_LT(calls, 1000);
  EXPECT_EQ(retries.resumptions(), calls);
}

TEST(PullRetriesTest, RetriesWithoutLimitWhileBytesArrive) {
  PullRetries retries;
  retries.Restart();
  for (int bytes = 1; bytes <= 1000; ++bytes) {
    ASSERT_TRUE(retries.MayRetry(/*answered=*/true, bytes, kLong));
  }
}

TEST(PullRetriesTest, PauseGrowsUntilBytesArrive) {
  PullRetries retries;
  retries.Restart();
  const auto first = retries.NextPause();
  EXPECT_GT(first.count(), 0);
  const auto second = retries.NextPause();
  EXPECT_GT(second, first);
  for (int i = 0; i < 20; ++i) EXPECT_LE(retries.NextPause(), std::chrono::seconds(1));
  ASSERT_TRUE(retries.MayRetry(/*answered=*/true, /*bytes=*/1, kLong));
  EXPECT_EQ(retries.NextPause(), first);
}

}  // namespace
}  // namespace tensord::server
