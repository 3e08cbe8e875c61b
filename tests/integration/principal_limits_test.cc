// The limits of callers: those of the token file, those of the flags, and the defaults, which leave
// room for other callers.
#include <gmock/gmock.h>
#include <sys/resource.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "tensord/common/status_details.h"
#include "tensord/tests/expect_error.h"
#include "tensord/tests/integration/identity_fixture.h"

namespace tensord::integration {
namespace {

using Code = absl::StatusCode;
using testing::HasSubstr;

class PrincipalLimitsTest : public IdentityFixture {
 protected:
  // Writes a token file in which alice has these limits. Bob has none.
  void WriteTokens(const std::string& limits_of_alice) {
    const auto alice = TokenLine("alice", HashToken("a"), absl::InfiniteFuture(), 1,
                                 /*admin=*/false, limits_of_alice);
    ASSERT_TRUE(alice.ok()) << alice.status();
    folder_.Write("tokens", *alice + "\n" + Line("bob", "b"));
  }

  void Start(const std::string& limits_of_alice, std::vector<std::string> flags = {}) {
    ASSERT_NO_FATAL_FAILURE(WriteTokens(limits_of_alice));
    flags.push_back("--token-file=" + folder_.File("tokens"));
    StartDaemon(flags);
    if (HasFatalFailure()) return;
    alice_ = std::make_unique<RpcClient>(daemon_->address(), RpcCredentials{.token = "a"});
    bob_ = std::make_unique<RpcClient>(daemon_->address(), RpcCredentials{.token = "b"});
  }

  void TearDown() override {
    alice_.reset();
    bob_.reset();
    IdentityFixture::TearDown();
  }

  static absl::Status Open(RpcClient& client) {
    return client.Call<v1::Session>("OpenSession", v1::OpenSessionRequest()).status();
  }

  std::unique_ptr<RpcClient> alice_;
  std::unique_ptr<RpcClient> bob_;
};

TEST_F(PrincipalLimitsTest, TheTokenFileReplacesTheFlagsAndErrorsNameIt) {
  Start("max-bytes=1MiB max-handles=3 max-sessions=1", {"--max-handles-per-principal=2"});
  RpcSession session(*alice_);
  RpcSession bobs(*bob_);
  ExpectError(Open(*alice_), Code::kResourceExhausted,
              {"(the server's token file: alice, max-sessions=1)"});
  ExpectError(session.Ones(1, {1 << 20}), Code::kResourceExhausted,
              {"(the server's token file: alice, max-bytes=1048576)"});
  for (uint64_t handle = 1; handle <= 2; ++handle) {
    EXPECT_TRUE(session.Ones(handle, {1 << 16}).ok());
    EXPECT_TRUE(bobs.Ones(handle, {1 << 20}).ok());
  }
  EXPECT_TRUE(session.Ones(3, {4}).ok());
  ExpectError(session.Ones(4, {4}), Code::kResourceExhausted,
              {"(the server's token file: alice, max-handles=3)"});
  ExpectError(bobs.Ones(3, {4}), Code::kResourceExhausted, {"--max-handles-per-principal=2"});
}

TEST_F(PrincipalLimitsTest, ChangesOfTheTokenFileTakeEffect) {
  Start("max-bytes=1MiB");
  RpcSession session(*alice_);
  EXPECT_FALSE(session.Ones(1, {1 << 20}).ok());
  WriteTokens("max-bytes=8MiB");
  EXPECT_TRUE(Eventually([&] { return session.Ones(1, {1 << 20}).ok(); }));
  // What the caller holds already counts against the new limit.
  WriteTokens("max-bytes=6MiB");
  EXPECT_TRUE(Eventually([&] {
    const absl::Status status = session.Ones(2, {1 << 20}).status();
    EXPECT_TRUE(!status.ok() || session.Delete({2}).ok());
    return !status.ok();
  }));
}

TEST_F(PrincipalLimitsTest, DefaultsLeaveRoomForOtherCallers) {
  Start("", {"--max-sessions=4", "--max-connections=8"});
  EXPECT_TRUE(Open(*alice_).ok());
  EXPECT_TRUE(Open(*alice_).ok());
  ExpectError(Open(*alice_), Code::kResourceExhausted, {"--max-sessions-per-principal=2"});
  EXPECT_TRUE(Open(*bob_).ok());
  std::vector<std::unique_ptr<RpcClient>> clients;
  for (int i = 0; i < 3; ++i) {
    clients.push_back(
        std::make_unique<RpcClient>(daemon_->address(), RpcCredentials{.token = "a"}));
    EXPECT_TRUE(ListDevices(*clients.back()).ok());
  }
  RpcClient one_more(daemon_->address(), RpcCredentials{.token = "a"});
  ExpectError(ListDevices(one_more).status(), Code::kResourceExhausted,
              {"--max-connections-per-principal=4"});
  RpcClient bobs(daemon_->address(), RpcCredentials{.token = "b"});
  EXPECT_TRUE(ListDevices(bobs).ok());
}

// Joins a group of one member.
absl::Status Join(RpcClient& client, const RpcSession& session, uint32_t member) {
  v1::JoinGroupRequest request;
  request.set_session(session.id());
  request.set_member(member);
  request.set_device("cpu:0");
  request.set_size(1);
  request.set_group_id(std::string(16, 'g'));
  return client.Call<v1::JoinGroupResponse>("JoinGroup", request).status();
}

// A program sends thousands of ops before it learns that the first one was refused.
class RefusedOpsTest : public PrincipalLimitsTest,
                       public testing::WithParamInterface<const char*> {};

TEST_P(RefusedOpsTest, LeaveTheSessionUsable) {
  const std::string limit = GetParam();
  Start(limit);
  ASSERT_FALSE(HasFatalFailure());
  RpcSession session(*alice_);
  ASSERT_TRUE(session.Ones(1, {4}).ok());
  constexpr uint64_t kLast = 30000;
  v1::SessionStreamRequest message = session.Attach();
  AddDefinition(&message, 1, "neg", 1);
  v1::Batch& batch = *message.add_commands()->mutable_batch();
  for (uint64_t handle = 2; handle <= kLast; ++handle) {
    for (const uint64_t word : {uint64_t{1}, handle == 2 ? handle : 1, handle - 1}) {
      batch.add_words(word);
    }
  }
  int errors = 0;
  const absl::Status ended = RunStream(
      *alice_, {message},
      [&errors](const v1::SessionStreamResponse& response) { errors += response.errors_size(); });
  EXPECT_TRUE(ended.ok()) << ended;
  EXPECT_GT(errors, 0);
  // Reads and ops of a refused result name the limit, and all others work.
  const std::string flag = limit.substr(0, limit.find('='));
  ExpectError(session.Read(kLast), Code::kResourceExhausted, {flag});
  ExpectError(session.Add(kLast, 1, kLast + 1), Code::kResourceExhausted, {flag});
  const auto values = session.ReadFloats(2);
  ASSERT_TRUE(values.ok()) << values.status();
  EXPECT_EQ((*values)[3], -1);
  ASSERT_TRUE(session.Delete({3, 4, 5, 6, 7, 8, 9, 10}).ok());
  EXPECT_TRUE(session.Add(1, 2, kLast + 2).ok());
  ExpectError(session.Read(3), Code::kNotFound, {"was deleted"});
  ExpectError(session.Read(kLast + 3), Code::kNotFound, {"no tensor"});
}

INSTANTIATE_TEST_SUITE_P(Limits, RefusedOpsTest,
                         testing::Values("max-host-bytes=4MiB", "max-handles=1000"));

TEST_F(PrincipalLimitsTest, MembersOfGroupsAreLimitedOverAllSessions) {
  Start("", {"--max-group-members-per-principal=2"});
  RpcSession first(*alice_);
  RpcSession second(*alice_);
  RpcSession bobs(*bob_);
  EXPECT_TRUE(Join(*alice_, first, 1).ok());
  EXPECT_TRUE(Join(*alice_, second, 1).ok());
  ExpectError(Join(*alice_, second, 2), Code::kResourceExhausted,
              {"--max-group-members-per-principal=2", "LeaveGroup"});
  EXPECT_TRUE(Join(*bob_, bobs, 1).ok());
  ASSERT_TRUE(first.Close().ok());
  EXPECT_TRUE(Eventually([&] { return Join(*alice_, second, 2).ok(); }));
}

// Each member has a thread. The system limits the threads of all processes of a user who isn't
// root, so the test must be root's.
TEST_F(PrincipalLimitsTest, MembersOfGroupsLeaveThreadsForOthers) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can lower the daemon's limit of threads alone";
  constexpr rlim_t kThreads = 64;
  rlimit before = {};
  ASSERT_EQ(getrlimit(RLIMIT_NPROC, &before), 0);
  const rlimit low = {kThreads, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NPROC, &low), 0);
  Start("");
  ASSERT_EQ(setrlimit(RLIMIT_NPROC, &before), 0);
  RpcSession session(*alice_);
  for (uint32_t member = 1; member <= kThreads / 4; ++member) {
    ASSERT_TRUE(Join(*alice_, session, member).ok()) << member;
  }
  RpcSession bobs(*bob_);
  ExpectError(Join(*bob_, bobs, 1), Code::kResourceExhausted, {"16, a quarter of the threads"});
  ASSERT_TRUE(session.Close().ok());
  EXPECT_TRUE(Eventually([&] { return Join(*bob_, bobs, 1).ok(); }));
}

TEST_F(PrincipalLimitsTest, OutOfMemoryErrorNamesBytesOfCallerAndOthers) {
  Start("");
  RpcSession session(*alice_);
  RpcSession bobs(*bob_);
  ASSERT_TRUE(session.Ones(1, {10 << 20}, "cpu:1").ok());
  ASSERT_TRUE(bobs.Ones(1, {1 << 20}, "cpu:1").ok());
  ExpectError(
      bobs.Ones(2, {10 << 20}, "cpu:1"), Code::kResourceExhausted,
      {"cpu:1 is out of memory", "the caller holds 4194304 bytes there", "other callers 41943040"});
}

TEST_F(PrincipalLimitsTest, TheCommandLineHelpNamesEveryLimit) {
  std::string output;
  EXPECT_EQ(*RunDaemon({"--help"}, &output), 0);
  for (const PrincipalLimitInfo& info : kPrincipalLimits) {
    EXPECT_THAT(output, HasSubstr(absl::StrCat("--", info.name, "-per-principal ")));
  }
}

}  // namespace
}  // namespace tensord::integration
