// The log of sessions: its lines, their escaping, and the limit of their rate.
#include "tensord/server/session/session_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tensord/server/session/session_table.h"
#include "tensord/tests/unit/session/test_clock.h"
#include "tensord/tests/unit/session/test_principal.h"

namespace tensord::server {
namespace {

using testing::AllOf;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::SizeIs;

class SessionLogTest : public testing::Test {
 protected:
  SessionLogTest()
      : log_([this](absl::string_view line) { lines_.emplace_back(line); }, [] { return now; }),
        table_({}, {}, [] { return now; }) {
    table_.SetLog(&log_);
  }

  std::vector<std::string> lines_;
  SessionLog log_;
  SessionTable table_;
};

TEST_F(SessionLogTest, LogsTheBeginAndEndOfEverySession) {
  const PrincipalRef alice = TestPrincipalWith({.max_sessions_per_principal = 2}, "alice");
  const std::string first = (*table_.Open(alice, 10, "notebook"))->id();
  ASSERT_TRUE(table_.Open(alice, 10, "").ok());
  ASSERT_FALSE(table_.Open(alice, 10, "").ok());
  ASSERT_TRUE(table_.Close(alice, first).ok());
  now += std::chrono::seconds(11);
  table_.EndExpired();
  EXPECT_THAT(lines_,
              ElementsAre("session 1 of alice by a token opened by \"notebook\", lease 10 s",
                          "session 2 of alice by a token opened by \"\", lease 10 s",
                          AllOf(HasSubstr("refused alice: "), HasSubstr("limit of sessions")),
                          "session 1 of alice by a token closed, 0 tensors freed",
                          "session 2 of alice by a token expired, 0 tensors freed"));
}

TEST_F(SessionLogTest, ShowsAnonymousCallersAsListsOfSessionsDo) {
  PrincipalTable principals;
  ASSERT_TRUE(table_.Open(principals.Get(Principal::Kind::kAnonymous, "anonymous"), 10, "").ok());
  EXPECT_THAT(lines_, ElementsAre("session 1 of (anonymous) opened by \"\", lease 10 s"));
}

TEST_F(SessionLogTest, EscapesControlCharacters) {
  const std::string evil = "x\ntensord: session 9 of root opened\r\x1b[2J\xff\"";
  ASSERT_TRUE(table_.Open(TestPrincipal(evil), 0, evil).ok());
  log_.Refused(evil, absl::UnauthenticatedError(evil + std::string(5000, 'y')));
  ASSERT_THAT(lines_, SizeIs(2));
  for (const std::string& line : lines_) {
    EXPECT_EQ(line.find_first_of("\n\r\x1b\xff"), line.npos) << line;
    EXPECT_LT(line.size(), 1000u);
  }
}

TEST_F(SessionLogTest, KeepsTheQuotesOfTheServersOwnMessages) {
  log_.Refused("alice", absl::UnauthenticatedError("send \"authorization\", don't \\ \n"));
  EXPECT_THAT(lines_, ElementsAre("refused alice: send \"authorization\", don't \\\\ \\n"));
}

TEST_F(SessionLogTest, ShowsReasonsOfUsualLengthWhole) {
  const std::string reason = std::string(499, 'x') + ".";
  log_.Refused("alice", absl::UnauthenticatedError(reason));
  EXPECT_THAT(lines_, ElementsAre("refused alice: " + reason));
}

TEST_F(SessionLogTest, LimitsAndCountsFloods) {
  for (int i = 0; i < 5000; ++i) log_.Refused("alice", absl::UnauthenticatedError("no"));
  EXPECT_THAT(lines_, SizeIs(SessionLog::kMaxAtOnce));
  EXPECT_THAT(lines_, Each("refused alice: no"));
  lines_.clear();
  now += std::chrono::seconds(1);
  for (int i = 0; i < 5000; ++i) log_.Refused("alice", absl::UnauthenticatedError("no"));
  ASSERT_THAT(lines_, SizeIs(SessionLog::kLinesPerSecond + 1));
  EXPECT_EQ(lines_[0], "4900 lines about sessions left out");
}

}  // namespace
}  // namespace tensord::server
