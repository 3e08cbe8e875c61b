#include "tensord/client/internal/peer_route_backoff.h"

#include <gtest/gtest.h>

#include <string>

namespace tensord::internal {
namespace {

using std::chrono::seconds;

class PeerRouteBackoffTest : public testing::Test {
 protected:
  bool UsesRoute(int64_t reconnects = 0) { return routes_.ReasonToSkip("a", reconnects).empty(); }

  PeerRouteBackoff::Clock::time_point now_{seconds(1000)};
  PeerRouteBackoff routes_{[this] { return now_; }};
};

TEST_F(PeerRouteBackoffTest, SkipsRouteForAPauseAfterFailure) {
  EXPECT_TRUE(UsesRoute());
  routes_.RecordFailure("a", 0, "no answer");
  EXPECT_EQ(routes_.ReasonToSkip("a", 0), "no answer");
  EXPECT_EQ(routes_.ReasonToSkip("b", 0), "");
  now_ += seconds(29);
  EXPECT_FALSE(UsesRoute());
  now_ += seconds(1);
  EXPECT_TRUE(UsesRoute());
  // Until the outcome of this attempt is known, there is no other attempt.
  EXPECT_FALSE(UsesRoute());
  routes_.RecordSuccess("a");
  EXPECT_TRUE(UsesRoute());
  EXPECT_TRUE(UsesRoute());
}

TEST_F(PeerRouteBackoffTest, EachFailureDoublesThePause) {
  routes_.RecordFailure("a", 0, "no answer");
  for (const int pause : {30, 60, 120, 240, 240, 240}) {
    now_ += seconds(pause - 1);
    EXPECT_FALSE(UsesRoute()) << pause;
    now_ += seconds(1);
    EXPECT_TRUE(UsesRoute()) << pause;
    now_ += seconds(10);  // the duration of the attempt
    routes_.RecordFailure("a", 0, "no answer");
  }
}

TEST_F(PeerRouteBackoffTest, CopiesThatFailTogetherCountOnce) {
  for (int i = 0; i < 100; ++i) routes_.RecordFailure("a", 0, "no answer");
  now_ += seconds(30);
  EXPECT_TRUE(UsesRoute());
}

TEST_F(PeerRouteBackoffTest, TriesAgainIfOutcomeWasNeverRecorded) {
  routes_.RecordFailure("a", 0, "no answer");
  now_ += seconds(30);
  EXPECT_TRUE(UsesRoute());
  now_ += seconds(30);
  EXPECT_TRUE(UsesRoute());
}

TEST_F(PeerRouteBackoffTest, ReconnectEndsThePause) {
  routes_.RecordFailure("a", 0, "no answer");
  EXPECT_TRUE(UsesRoute(/*reconnects=*/1));
  routes_.RecordFailure("a", 1, "refused");
  EXPECT_EQ(routes_.ReasonToSkip("a", 1), "refused");
  // This attempt began before the connection broke.
  routes_.RecordFailure("a", 0, "no answer");
  EXPECT_TRUE(UsesRoute(/*reconnects=*/1));
}

}  // namespace
}  // namespace tensord::internal
