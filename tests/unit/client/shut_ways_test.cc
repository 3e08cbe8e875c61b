#include "tensord/client/internal/shut_ways.h"

#include <gtest/gtest.h>

#include <string>

namespace tensord::internal {
namespace {

using std::chrono::seconds;

class ShutWaysTest : public testing::Test {
 protected:
  bool IsTried(int64_t reconnects = 0) { return ways_.WhyNotTried("a", reconnects).empty(); }

  ShutWays::Clock::time_point now_{seconds(1000)};
  ShutWays ways_{[this] { return now_; }};
};

TEST_F(ShutWaysTest, AWayThatWasFoundShutIsLeftAloneForAWhile) {
  EXPECT_TRUE(IsTried());
  ways_.FoundShut("a", 0, "no answer");
  EXPECT_EQ(ways_.WhyNotTried("a", 0), "no answer");
  EXPECT_EQ(ways_.WhyNotTried("b", 0), "");
  now_ += seconds(29);
  EXPECT_FALSE(IsTried());
  now_ += seconds(1);
  EXPECT_TRUE(IsTried());
  // One is enough to find out.
  EXPECT_FALSE(IsTried());
  ways_.FoundOpen("a");
  EXPECT_TRUE(IsTried());
  EXPECT_TRUE(IsTried());
}

TEST_F(ShutWaysTest, EachVainTryDoublesThePause) {
  ways_.FoundShut("a", 0, "no answer");
  for (const int pause : {30, 60, 120, 240, 240, 240}) {
    now_ += seconds(pause - 1);
    EXPECT_FALSE(IsTried()) << pause;
    now_ += seconds(1);
    EXPECT_TRUE(IsTried()) << pause;
    now_ += seconds(10);  // for which the try took
    ways_.FoundShut("a", 0, "no answer");
  }
}

TEST_F(ShutWaysTest, CopiesOnTheirWayTogetherFindItOutOnce) {
  for (int i = 0; i < 100; ++i) ways_.FoundShut("a", 0, "no answer");
  now_ += seconds(30);
  EXPECT_TRUE(IsTried());
}

TEST_F(ShutWaysTest, ATryThatNeverTellsIsFollowedByAnother) {
  ways_.FoundShut("a", 0, "no answer");
  now_ += seconds(30);
  EXPECT_TRUE(IsTried());
  now_ += seconds(30);
  EXPECT_TRUE(IsTried());
}

TEST_F(ShutWaysTest, AConnectionMadeAnewIsReasonToTry) {
  ways_.FoundShut("a", 0, "no answer");
  EXPECT_TRUE(IsTried(/*reconnects=*/1));
  ways_.FoundShut("a", 1, "refused");
  EXPECT_EQ(ways_.WhyNotTried("a", 1), "refused");
  // Begun before the connection broke.
  ways_.FoundShut("a", 0, "no answer");
  EXPECT_TRUE(IsTried(/*reconnects=*/1));
}

}  // namespace
}  // namespace tensord::internal
