#include "tensord/client/internal/poller_election.h"

#include <gtest/gtest.h>

#include <thread>

namespace tensord::internal {
namespace {

class PollerElectionTest : public testing::Test {
 protected:
  void DeliverAnswer(uint64_t reply) {
    v1::SessionStreamResponse response;
    response.add_barriers()->set_barrier_id(reply);
    replies_.Deliver(&response);
  }

  ReplyTable replies_;
  SendPacing pacing_;
  PollerElection election_{&replies_, &pacing_};
};

TEST_F(PollerElectionTest, WaitingThreadPollsUntilItsAnswerHasCome) {
  const uint64_t reply = replies_.Expect();
  int polls = 0;
  election_.PollUntilArrived(reply, [&] {
    EXPECT_TRUE(election_.AnyWaiting());
    if (++polls == 3) DeliverAnswer(reply);
  });
  EXPECT_EQ(polls, 3);
}

TEST_F(PollerElectionTest, BackgroundThreadPausesAfterTheLastWait) {
  const uint64_t reply = replies_.Expect();
  pacing_.Begin();
  election_.PollUntilArrived(reply, [&] { DeliverAnswer(reply); });
  EXPECT_FALSE(election_.paused());
  election_.FinishWait();
  EXPECT_TRUE(election_.paused());
  EXPECT_FALSE(pacing_.collecting());
  const auto start = PollerElection::Clock::now();
  ASSERT_TRUE(election_.AwaitElection());
  EXPECT_FALSE(election_.paused());
  EXPECT_LT(PollerElection::Clock::now() - start, std::chrono::seconds(10));
}

// If a pause or an interval went on, pushes would hold commands back, and no thread would send
// them.
TEST_F(PollerElectionTest, WaitingThreadEndsThePauseAndTheIntervalBeforeItPolls) {
  uint64_t reply = replies_.Expect();
  election_.PollUntilArrived(reply, [&] { DeliverAnswer(reply); });
  election_.FinishWait();
  ASSERT_TRUE(election_.paused());
  pacing_.Begin();
  reply = replies_.Expect();
  election_.PollUntilArrived(reply, [&] {
    EXPECT_FALSE(election_.paused());
    EXPECT_FALSE(pacing_.collecting());
    DeliverAnswer(reply);
  });
  election_.FinishWait();
}

TEST_F(PollerElectionTest, ResumeEndsThePause) {
  const uint64_t reply = replies_.Expect();
  election_.PollUntilArrived(reply, [&] { DeliverAnswer(reply); });
  election_.FinishWait();
  election_.Resume();
  EXPECT_FALSE(election_.paused());
}

TEST_F(PollerElectionTest, WaitingThreadLeavesPollingToTheElectedOne) {
  const uint64_t reply = replies_.Expect();
  ASSERT_TRUE(election_.AwaitElection());
  election_.PollUntilArrived(reply, [] { FAIL(); });
  DeliverAnswer(reply);
  election_.Yield();  // pauses: the waiting thread has its answer
  EXPECT_TRUE(election_.paused());
  election_.FinishWait();
}

TEST_F(PollerElectionTest, EndReleasesTheBackgroundThread) {
  ASSERT_TRUE(election_.AwaitElection());
  std::thread background([&] { EXPECT_FALSE(election_.AwaitElection()); });
  election_.End();
  background.join();
}

}  // namespace
}  // namespace tensord::internal
