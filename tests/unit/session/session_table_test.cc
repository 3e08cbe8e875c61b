// The table of sessions: opening, finding and closing sessions, and expired leases.
#include "tensord/server/session/session_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <set>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tensord/tests/unit/engine/engine_fixture.h"
#include "tensord/tests/unit/session/test_principal.h"

namespace tensord::server {
namespace {

using Code = absl::StatusCode;

constexpr Limits kTableLimits{
    .max_sessions = 3, .default_lease_seconds = 100, .max_lease_seconds = 1000};

class SessionTableTest : public testing::Test {
 protected:
  SessionTableTest() : table_(kTableLimits, {}) {}
  SessionTable table_;
};

TEST_F(SessionTableTest, OpensFindsAndCloses) {
  const SessionRef session = *table_.Open(TestPrincipal(), 0, "alice");
  EXPECT_EQ(session->client_name(), "alice");
  {
    const auto use = table_.Use(TestPrincipal(), session->id());
    ASSERT_TRUE(use.ok());
    EXPECT_EQ(use->ref(), session);
  }
  ASSERT_TRUE(session->Insert(Tensor::Make(1, TensorSpec{}, nullptr)).ok());
  EXPECT_EQ(*table_.Close(TestPrincipal(), session->id()), 1);
  EXPECT_TRUE(session->closed());
  EXPECT_TRUE(table_.All().empty());
}

TEST_F(SessionTableTest, ClosedSessionLooksUnknown) {
  const std::string id = (*table_.Open(TestPrincipal(), 0, ""))->id();
  ASSERT_TRUE(table_.Close(TestPrincipal(), id).ok());
  const absl::Status never =
      table_.Use(TestPrincipal(), "0123456789abcdef0123456789abcdef").status();
  ExpectError(never, Code::kNotFound, {"OpenSession"});
  EXPECT_EQ(table_.Use(TestPrincipal(), id).status(), never);
  EXPECT_EQ(table_.Close(TestPrincipal(), id).status(), never);
  ExpectError(table_.Use(TestPrincipal(), ""), Code::kInvalidArgument, {"session"});
}

TEST_F(SessionTableTest, SessionOfAnotherPrincipalLooksUnknown) {
  const PrincipalRef alice = TestPrincipal("alice");
  const PrincipalRef bob = TestPrincipal("bob");
  const SessionRef session = *table_.Open(alice, 0, "");
  const absl::Status never = table_.Use(bob, "0123456789abcdef0123456789abcdef").status();
  EXPECT_EQ(table_.Use(bob, session->id()).status(), never);
  EXPECT_EQ(table_.Close(bob, session->id()).status(), never);
  EXPECT_EQ(table_.Use(nullptr, session->id()).status(), never);
  EXPECT_TRUE(table_.Of(bob).empty());
  EXPECT_EQ(table_.Of(alice), std::vector<SessionRef>{session});
  EXPECT_FALSE(session->closed());
  EXPECT_TRUE(table_.Use(alice, session->id()).ok());
}

TEST_F(SessionTableTest, OnlyItsOwnerOrAnAdministratorClosesASessionByNumber) {
  const PrincipalRef alice = TestPrincipal("alice"), bob = TestPrincipal("bob");
  const SessionRef first = *table_.Open(alice, 0, ""), second = *table_.Open(alice, 0, "");
  ExpectError(table_.Close(bob, first->number(), /*is_admin=*/false), Code::kNotFound,
              {"no session 1;"});
  EXPECT_TRUE(table_.Close(alice, first->number(), /*is_admin=*/false).ok());
  EXPECT_TRUE(table_.Close(bob, second->number(), /*is_admin=*/true).ok());
  EXPECT_TRUE(first->closed() && second->closed());
  ExpectError(table_.Close(bob, second->number(), /*is_admin=*/true), Code::kNotFound);
  EXPECT_EQ(table_.counts().opened, 2);
  EXPECT_EQ(table_.counts().closed, 2);
}

TEST_F(SessionTableTest, RejectsOpenWithoutAPrincipal) {
  ExpectError(table_.Open(nullptr, 0, ""), Code::kUnauthenticated);
  EXPECT_TRUE(table_.All().empty());
}

TEST(PrincipalTableTest, OneObjectPerNameWhileReferenced) {
  PrincipalTable table;
  using Kind = Principal::Kind;
  const PrincipalRef alice = table.Get(Kind::kToken, "alice");
  EXPECT_EQ(table.Get(Kind::kToken, "alice"), alice);
  EXPECT_NE(table.Get(Kind::kToken, "bob"), alice);
  EXPECT_NE(table.Get(Kind::kCertificate, "alice"), alice) << "another kind of credential";
  for (int i = 0; i < 1000; ++i) table.Get(Kind::kToken, absl::StrCat("passer-by ", i));
  EXPECT_EQ(table.Get(Kind::kToken, "alice"), alice);
}

TEST_F(SessionTableTest, IdsAre128RandomBits) {
  std::set<std::string> ids;
  for (int i = 0; i < 1000; ++i) {
    const std::string id = RandomId();
    EXPECT_EQ(id.size(), 32u);
    EXPECT_EQ(id.find_first_not_of("0123456789abcdef"), std::string::npos);
    EXPECT_TRUE(ids.insert(id).second);
  }
}

TEST_F(SessionTableTest, LeasesAreGrantedWithinLimits) {
  EXPECT_EQ((*table_.Open(TestPrincipal(), 0, ""))->lease().count(), 100);
  EXPECT_EQ((*table_.Open(TestPrincipal(), 7, ""))->lease().count(), 7);
  EXPECT_EQ((*table_.Open(TestPrincipal(), 1 << 30, ""))->lease().count(), 1000);
  ExpectError(table_.Open(TestPrincipal(), -1, ""), Code::kInvalidArgument, {"-1"});
}

TEST_F(SessionTableTest, LimitsSessions) {
  std::vector<SessionRef> sessions;
  for (int i = 0; i < 3; ++i) sessions.push_back(*table_.Open(TestPrincipal(), 0, ""));
  ExpectError(table_.Open(TestPrincipal(), 0, ""), Code::kResourceExhausted,
              {"3", "--max-sessions"});
  ASSERT_TRUE(table_.Close(TestPrincipal(), sessions[1]->id()).ok());
  const auto another = table_.Open(TestPrincipal(), 0, "");
  ASSERT_TRUE(another.ok());
  const std::vector<SessionRef> all = table_.All();
  ASSERT_EQ(all.size(), 3u);
  EXPECT_EQ(all[0], sessions[0]);
  EXPECT_EQ(all[2], *another);
  EXPECT_GT((*another)->number(), sessions[2]->number()) << "numbers aren't reused";
}

TEST_F(SessionTableTest, LimitsClientNames) {
  EXPECT_TRUE(table_.Open(TestPrincipal(), 0, std::string(128, 'x')).ok());
  ExpectError(table_.Open(TestPrincipal(), 0, std::string(129, 'x')), Code::kInvalidArgument,
              {"129", "128"});
}

std::chrono::steady_clock::time_point test_time{};

std::chrono::steady_clock::time_point TestTime() { return test_time; }

// Ids are random, so the order must not be that of a map by id.
TEST(SessionTableOrderTest, ExpiredSessionsCloseInOrderOfNumber) {
  SessionTable table(Limits(), {}, &TestTime);
  std::vector<uint64_t> opened;
  std::vector<uint64_t> closed;
  for (int i = 0; i < 50; ++i) {
    const SessionRef session = *table.Open(TestPrincipal(), 1, "");
    opened.push_back(session->number());
    ASSERT_TRUE(session
                    ->WhenReceived(1, [&closed, number = session->number()](
                                          const absl::Status&) { closed.push_back(number); })
                    .ok());
  }
  test_time += std::chrono::seconds(2);
  table.EndExpired();
  EXPECT_EQ(closed, opened);
}

TEST(SessionActivityTest, ShowsAgeAndIdleTime) {
  using std::chrono::seconds;
  SessionTable table(Limits(), {}, &TestTime);
  const SessionRef session = *table.Open(TestPrincipal(), 100, "");
  test_time += seconds(10);
  EXPECT_EQ(session->activity().age, seconds(10));
  EXPECT_EQ(session->activity().idle, seconds(10));
  EXPECT_FALSE(session->activity().in_use);
  {
    const auto use = table.Use(TestPrincipal(), session->id());
    test_time += seconds(5);
    EXPECT_TRUE(session->activity().in_use);
    EXPECT_EQ(session->activity().idle, seconds(0));
  }
  test_time += seconds(1);
  EXPECT_EQ(session->activity().age, seconds(16));
  EXPECT_EQ(session->activity().idle, seconds(1));
  ASSERT_TRUE(session->Insert(std::make_shared<Tensor>(1, TensorSpec{}, nullptr)).ok());
  EXPECT_EQ(session->num_handles(), 1);
  session->Drop({1});
  EXPECT_EQ(session->num_handles(), 0);
}

TEST(SessionIdleTest, UnusedSessionsEndAlthoughTheirStreamIsAttached) {
  using std::chrono::seconds;
  SessionTable table({.max_idle_seconds = 60}, {}, &TestTime);
  const SessionRef busy = *table.Open(TestPrincipal(), 1000, "");
  const SessionRef unused = *table.Open(TestPrincipal(), 1000, "");
  std::vector<absl::StatusOr<SessionUse>> streams;
  for (const SessionRef& session : {busy, unused}) {
    streams.push_back(table.Use(TestPrincipal(), session->id()));
    session->SetStreamAttached(true);
  }
  test_time += seconds(50);
  busy->NotifyReceived(1);
  table.EndExpired();
  EXPECT_FALSE(unused->closed());
  test_time += seconds(20);
  table.EndExpired();
  EXPECT_TRUE(unused->closed());
  EXPECT_FALSE(busy->closed());
  // A call keeps a session.
  {
    const auto use = table.Use(TestPrincipal(), busy->id());
    test_time += seconds(100);
    table.EndExpired();
    EXPECT_FALSE(busy->closed());
  }
  // An op keeps a session, too. It may take longer than the limit.
  ASSERT_TRUE(busy->ops().Begin(100).ok());
  test_time += seconds(100);
  table.EndExpired();
  busy->ops().End(100);
  test_time += seconds(50);
  table.EndExpired();
  EXPECT_FALSE(busy->closed());
  test_time += seconds(11);
  table.EndExpired();
  EXPECT_TRUE(busy->closed());
}

// Uses an engine, so that there is memory to free.
using LeaseTest = EngineFixture;

TEST_F(LeaseTest, ExpiredLeaseFreesEverything) {
  const SessionRef expiring = *sessions_->Open(TestPrincipal(), 1, "expiring");
  ASSERT_TRUE(engine_
                  ->Run(expiring, {.op = "ones",
                                   .output = 1,
                                   .attrs = {{"shape", std::vector<int64_t>{16}}},
                                   .device = "cpu:1"})
                  .ok());
  ASSERT_TRUE(Full(1, 2, 3).ok());
  EXPECT_TRUE(Eventually([&] { return expiring->closed(); }));
  EXPECT_TRUE(Eventually([&] { return UsedBytes(1) == 0; }));
  ExpectError(sessions_->Use(TestPrincipal(), expiring->id()), Code::kNotFound);
  EXPECT_TRUE(Read(1).ok()) << "the other session's lease still runs";
}

TEST_F(LeaseTest, SessionInUseOutlivesItsLease) {
  const SessionRef used = *sessions_->Open(TestPrincipal(), 1, "used");
  const SessionRef unused = *sessions_->Open(TestPrincipal(), 2, "unused");
  auto use = sessions_->Use(TestPrincipal(), used->id());
  ASSERT_TRUE(use.ok());
  // When the other session ends, more time than the lease of `used` has passed.
  ASSERT_TRUE(Eventually([&] { return unused->closed(); }));
  EXPECT_FALSE(used->closed());
  *use = SessionUse();
  EXPECT_TRUE(Eventually([&] { return used->closed(); }));
}

TEST_F(LeaseTest, DestroyingTheTableClosesEverySession) {
  ASSERT_TRUE(Full(1, 2, 3).ok());
  sessions_.reset();
  EXPECT_TRUE(session_->closed());
  EXPECT_TRUE(Eventually([&] { return UsedBytes(0) == 0; }));
}

}  // namespace
}  // namespace tensord::server
