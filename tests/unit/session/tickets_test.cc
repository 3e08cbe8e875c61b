// Tickets: each is valid for one tensor, destination, principal and pull, and for a limited time.
#include "tensord/server/session/tickets.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tensord/server/session/session_table.h"
#include "tensord/tests/unit/session/test_clock.h"
#include "tensord/tests/unit/session/test_principal.h"

namespace tensord::server {
namespace {

using Code = absl::StatusCode;
using std::chrono::seconds;

std::chrono::steady_clock::time_point Now() { return now; }

const std::string kPullId(Tickets::kPullIdBytes, 'a');
const std::string kOther(Tickets::kPullIdBytes, 'b');

class TicketsTest : public testing::Test {
 protected:
  TicketsTest() : principals_({.max_tickets_per_principal = 3}), table_({}, {}, &Now) {
    session_ = *table_.Open(principals_.Get(Principal::Kind::kToken, "alice"), 0, "");
    use_ = *table_.Use(session_->principal(), session_->id());
    tensor_ = Tensor::Make(1, TensorSpec{}, nullptr);
  }

  std::string Issue() { return *tickets().Issue(session_, tensor_, "there"); }
  Tickets& tickets() { return table_.tickets(); }

  // Begins a pull with the ticket. The pull lasts as long as the returned object. Returns null if
  // the ticket is refused.
  std::unique_ptr<Tickets::Use> Begin(const std::string& ticket,
                                      const std::string& pull_id = kPullId,
                                      const std::string& epoch = "there",
                                      const std::string& kind = "token",
                                      const std::string& name = "alice") {
    auto use = tickets().Begin(ticket, {.destination_epoch = epoch,
                                        .principal_kind = kind,
                                        .principal_name = name,
                                        .pull_id = pull_id});
    if (use.ok()) return *std::move(use);
    EXPECT_EQ(use.status().code(), Code::kPermissionDenied) << use.status();
    return nullptr;
  }

  PrincipalTable principals_;
  SessionTable table_;
  SessionRef session_;
  SessionUse use_;  // the lease doesn't run while the session is in use
  TensorRef tensor_;
};

TEST_F(TicketsTest, AllowsItsPull) {
  const auto use = Begin(Issue());
  ASSERT_NE(use, nullptr);
  EXPECT_EQ(use->tensor(), tensor_);
}

TEST_F(TicketsTest, RefusesEveryOtherPull) {
  const std::string ticket = Issue();
  EXPECT_EQ(Begin(ticket, kPullId, "elsewhere"), nullptr);
  EXPECT_EQ(Begin(ticket, kPullId, "there", "token", "bob"), nullptr);
  EXPECT_EQ(Begin(ticket, kPullId, "there", "certificate"), nullptr);
  // The fields must be compared one by one, not joined.
  EXPECT_EQ(Begin(ticket, kPullId, "there", "tokena", "lice"), nullptr);
  EXPECT_EQ(Begin(ticket, "short"), nullptr);
  EXPECT_EQ(Begin("", kPullId), nullptr);
  SessionTable another({}, {}, &Now);
  EXPECT_FALSE(another.tickets().Begin(ticket, {"there", "token", "alice", kPullId}).ok());
  EXPECT_NE(Begin(ticket), nullptr) << "the refused pulls don't use it up";
}

TEST_F(TicketsTest, BelongsToItsFirstPull) {
  const std::string ticket = Issue();
  {
    const auto use = Begin(ticket);
    EXPECT_EQ(Begin(ticket, kOther), nullptr);
    EXPECT_NE(Begin(ticket), nullptr) << "over another connection";
  }
  EXPECT_EQ(Begin(ticket, kOther), nullptr);
  EXPECT_NE(Begin(ticket), nullptr) << "resumed";
}

TEST_F(TicketsTest, ExpiresUnlessAPullHasBegun) {
  const std::string unused = Issue();
  const std::string used = Issue();
  auto use = Begin(used);
  now += Tickets::kLifetime;
  EXPECT_NE(Begin(unused), nullptr) << "the last moment";
  now += Tickets::kLifetime + seconds(1);
  EXPECT_EQ(Begin(unused), nullptr);
  table_.EndExpired();
  EXPECT_EQ(session_->principal()->budget(PrincipalLimit::kTickets).used(), 1)
      << "the ticket whose pull is active";
  use.reset();
  EXPECT_NE(Begin(used), nullptr);
  now += Tickets::kLifetime + seconds(1);
  table_.EndExpired();
  EXPECT_EQ(session_->principal()->budget(PrincipalLimit::kTickets).used(), 0);
}

TEST_F(TicketsTest, HoldsTheTensorUntilItIsPulled) {
  const std::string ticket = Issue();
  const std::weak_ptr<Tensor> tensor = tensor_;
  tensor_.reset();
  EXPECT_FALSE(tensor.expired());
  auto use = Begin(ticket);
  use->Finished();
  use.reset();
  EXPECT_TRUE(tensor.expired());
  EXPECT_EQ(Begin(ticket), nullptr);
}

TEST_F(TicketsTest, FinishedPullMayBeRepeatedWhileTheTensorExists) {
  const std::string ticket = Issue();
  Begin(ticket)->Finished();
  EXPECT_NE(Begin(ticket), nullptr);
  EXPECT_EQ(Begin(ticket, kOther), nullptr);
}

TEST_F(TicketsTest, FinishedPullMayReconnectAgainAndAgain) {
  const std::string ticket = Issue();
  for (int i = 0; i < 3; ++i) {
    const auto use = Begin(ticket);
    ASSERT_NE(use, nullptr) << i;
    use->Finished();
  }
}

TEST_F(TicketsTest, ReleasedTicketIsFreedAtOnce) {
  const std::string ticket = Issue();
  const Tickets::Claim claim = {"there", "token", "alice", kPullId};
  const std::weak_ptr<Tensor> tensor = tensor_;
  tensor_.reset();
  auto use = Begin(ticket);
  ASSERT_NE(use, nullptr);
  EXPECT_TRUE(tickets().Release(ticket, claim).ok());
  EXPECT_EQ(session_->principal()->budget(PrincipalLimit::kTickets).used(), 0);
  EXPECT_FALSE(tensor.expired()) << "the open connection keeps the tensor";
  EXPECT_EQ(Begin(ticket), nullptr);
  EXPECT_EQ(tickets().Release(ticket, claim).code(), Code::kPermissionDenied);
  use->Finished();
  use.reset();
  EXPECT_TRUE(tensor.expired());
}

TEST_F(TicketsTest, OnlyItsPullReleasesATicket) {
  const std::string ticket = Issue();
  const auto use = Begin(ticket);
  for (const Tickets::Claim& claim : {Tickets::Claim{"there", "token", "alice", kOther},
                                      Tickets::Claim{"elsewhere", "token", "alice", kPullId},
                                      Tickets::Claim{"there", "token", "bob", kPullId}}) {
    EXPECT_EQ(tickets().Release(ticket, claim).code(), Code::kPermissionDenied);
  }
  EXPECT_NE(Begin(ticket), nullptr);
}

TEST_F(TicketsTest, UnusedTicketMayBeReleased) {
  const std::string ticket = Issue();
  EXPECT_TRUE(tickets().Release(ticket, {"there", "token", "alice", kPullId}).ok());
  EXPECT_EQ(session_->principal()->budget(PrincipalLimit::kTickets).used(), 0);
  EXPECT_EQ(Begin(ticket), nullptr);
}

TEST_F(TicketsTest, EndsWithItsSession) {
  const std::string ticket = Issue();
  const auto use = Begin(ticket);
  ASSERT_TRUE(table_.Close(session_->principal(), session_->id()).ok());
  EXPECT_EQ(session_->principal()->budget(PrincipalLimit::kTickets).used(), 0);
  EXPECT_EQ(Begin(ticket), nullptr);
  EXPECT_EQ(use->tensor(), tensor_) << "an active pull continues";
  EXPECT_EQ(tickets().Issue(session_, tensor_, "there").status().code(), Code::kFailedPrecondition);
}

TEST_F(TicketsTest, LimitsTicketsPerPrincipal) {
  std::vector<std::string> given;
  for (int i = 0; i < 3; ++i) given.push_back(Issue());
  const auto refused = tickets().Issue(session_, tensor_, "there");
  EXPECT_EQ(refused.status().code(), Code::kResourceExhausted);
  EXPECT_THAT(std::string(refused.status().message()),
              testing::HasSubstr("--max-tickets-per-principal=3"));
  const SessionRef others = *table_.Open(TestPrincipal("bob"), 0, "");
  EXPECT_TRUE(tickets().Issue(others, tensor_, "there").ok());
  Begin(given[0])->Finished();
  EXPECT_TRUE(tickets().Issue(session_, tensor_, "there").ok());
  now += Tickets::kLifetime + seconds(1);
  table_.EndExpired();
  EXPECT_TRUE(tickets().Issue(session_, tensor_, "there").ok());
}

}  // namespace
}  // namespace tensord::server
