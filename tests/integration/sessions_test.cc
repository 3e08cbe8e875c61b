// Sessions are listed and closed by their owners, and by administrators.
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "tensord/client/tensord.h"
#include "tensord/common/status_details.h"
#include "tensord/tests/integration/fault_socket.h"
#include "tensord/tests/integration/identity_fixture.h"
#include "tensord/tests/run_command.h"

namespace tensord::integration {
namespace {

using Code = absl::StatusCode;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

absl::StatusOr<v1::ListSessionsResponse> ListSessions(RpcClient& client,
                                                      const v1::ListSessionsRequest& request = {}) {
  return client.Call<v1::ListSessionsResponse>("ListSessions", request);
}

absl::StatusOr<v1::CloseSessionResponse> CloseByNumber(RpcClient& client, uint64_t number) {
  v1::CloseSessionRequest request;
  request.set_session_number(number);
  return client.Call<v1::CloseSessionResponse>("CloseSession", request);
}

// Returns the owners of the sessions that the caller sees, in order of session.
std::vector<std::string> Owners(RpcClient& client) {
  const auto listed = ListSessions(client);
  EXPECT_TRUE(listed.ok()) << listed.status();
  std::vector<std::string> owners;
  for (const v1::SessionInfo& session : listed->sessions()) owners.push_back(session.principal());
  return owners;
}

// A daemon with the callers alice and bob. Bob also has an administrator's token.
class SessionsTest : public IdentityFixture {
 protected:
  void SetUp() override {
    const absl::Time never = absl::InfiniteFuture();
    folder_.Write("tokens", Line("alice", "a") + Line("bob", "b") +
                                *TokenLine("bob", HashToken("root"), never, 1, /*admin=*/true));
    for (const char* token : {"a", "b", "root"}) folder_.Write(token, token);
    StartDaemon({"--token-file=" + folder_.File("tokens"), "--log-sessions",
                 "--fault-socket=" + folder_.File("faults"), "--max-sessions=5",
                 "--max-sessions-per-principal=0"},
                "faulty:cpu=1GiB,cpu=64MiB");
    alice_ = std::make_unique<RpcClient>(daemon_->address(), RpcCredentials{.token = "a"});
    bob_ = std::make_unique<RpcClient>(daemon_->address(), RpcCredentials{.token = "b"});
    root_ = std::make_unique<RpcClient>(daemon_->address(), RpcCredentials{.token = "root"});
  }
  void TearDown() override {
    alice_.reset();
    bob_.reset();
    root_.reset();
    IdentityFixture::TearDown();
  }

  // Runs tensorctl with a token, or without one if it is empty.
  CommandResult Tensorctl(const std::string& token, const std::string& arguments) {
    const std::string command = absl::StrCat(
        "env -u TENSORD_SERVER -u TENSORD_SERVERS COLUMNS=300 " TENSORCTL_PATH " --server ",
        daemon_->address(), token.empty() ? "" : " --token-file ",
        token.empty() ? "" : folder_.File(token), " ", arguments);
    return RunCommand(command, folder_.File("errors"));
  }

  std::unique_ptr<RpcClient> alice_;
  std::unique_ptr<RpcClient> bob_;
  std::unique_ptr<RpcClient> root_;
};

TEST_F(SessionsTest, CallersSeeTheirOwnSessionsAndAdministratorsSeeAll) {
  const RpcSession first(*alice_), second(*bob_), third(*alice_);
  EXPECT_THAT(Owners(*alice_), ElementsAre("alice", "alice"));
  EXPECT_THAT(Owners(*bob_), ElementsAre("bob"));
  EXPECT_THAT(Owners(*root_), ElementsAre("alice", "bob", "alice"));
  v1::ListSessionsRequest of_alice;
  of_alice.set_principal("alice");
  EXPECT_EQ(ListSessions(*root_, of_alice)->sessions_size(), 2);
  EXPECT_EQ(ListSessions(*alice_, of_alice)->sessions_size(), 2);
  of_alice.set_principal("carol");
  EXPECT_EQ(ListSessions(*root_, of_alice)->sessions_size(), 0);
}

TEST_F(SessionsTest, OnlyAdministratorsListTheTensorsOfAllPrincipals) {
  RpcSession hers(*alice_), his(*bob_);
  ASSERT_TRUE(hers.CreateFloats(1, {1, 2}).ok());
  ASSERT_TRUE(his.CreateFloats(7, {3}).ok());
  v1::ListTensorsRequest request;
  request.set_session("-");
  request.set_all_principals(true);
  request.set_page_size(1);
  std::vector<std::string> held;
  do {
    const auto listed = root_->Call<v1::ListTensorsResponse>("ListTensors", request);
    ASSERT_TRUE(listed.ok()) << listed.status();
    for (const v1::Tensor& tensor : listed->tensors()) {
      held.push_back(absl::StrCat(tensor.principal(), " ", tensor.handle()));
    }
    request.set_page_token(listed->next_page_token());
  } while (!request.page_token().empty());
  EXPECT_THAT(held, ElementsAre("alice 1", "bob 7"));
  ExpectError(alice_->Call<v1::ListTensorsResponse>("ListTensors", request),
              Code::kPermissionDenied, {"administrator", "\"admin\""});
  request.set_session(his.id());
  ExpectError(root_->Call<v1::ListTensorsResponse>("ListTensors", request), Code::kInvalidArgument,
              {"all_principals", "\"-\""});
  ExpectError(hers.ReadFloats(7), Code::kNotFound);
}

TEST_F(SessionsTest, ErrorsDoNotShowWhichSessionsOfOthersExist) {
  const RpcSession hers(*alice_);
  // Bob lists the sessions of alice, and of a principal that doesn't exist.
  v1::ListSessionsRequest of_another;
  of_another.set_principal("alice");
  const absl::Status exists = ListSessions(*bob_, of_another).status();
  of_another.set_principal("carol");
  ExpectError(exists, Code::kPermissionDenied, {"administrator"});
  EXPECT_EQ(ListSessions(*bob_, of_another).status(), exists);
  // Bob closes alice's session, and one that doesn't exist. Only the number differs.
  const absl::Status foreign = CloseByNumber(*bob_, 1).status();
  ExpectError(foreign, Code::kNotFound, {"no session 1;"});
  const absl::Status never = CloseByNumber(*bob_, 2).status();
  EXPECT_EQ(ErrorReason(foreign), ErrorReason(never));
  EXPECT_EQ(absl::StrCat("no session 1", never.message().substr(strlen("no session 2"))),
            foreign.message());
  EXPECT_THAT(Owners(*alice_), ElementsAre("alice"));
}

TEST_F(SessionsTest, SessionsAreClosedByNumber) {
  RpcSession hers(*alice_), his(*bob_);
  ASSERT_TRUE(hers.Ones(1, {4}).ok());
  ASSERT_TRUE(his.Ones(1, {4}).ok());
  const auto own = CloseByNumber(*alice_, 1);
  ASSERT_TRUE(own.ok()) << own.status();
  EXPECT_EQ(own->tensors_freed(), 1);
  EXPECT_TRUE(Says("session 1 of alice by a token closed, 1 tensor freed"));
  // The administrator's token has the same name as bob's, but here it closes alice's session.
  RpcSession another(*alice_);
  ASSERT_TRUE(CloseByNumber(*root_, 3).ok());
  EXPECT_TRUE(Says("session 3 of alice by a token closed by an administrator"));
  ExpectError(another.Ones(1, {4}), Code::kNotFound, {"no such session"});
  EXPECT_TRUE(his.Ones(2, {4}).ok());
  ExpectError(CloseByNumber(*root_, 3), Code::kNotFound, {"no session 3;"});
}

TEST_F(SessionsTest, ClientsLearnThatTheirSessionWasClosed) {
  const auto connect = [this] { return *Client::Connect(daemon_->address(), {.token = "a"}); };
  const struct {
    RpcClient& closer;
    std::string reason;
  } cases[] = {{*root_, "the session was closed by an administrator"},
               {*alice_, "the session was closed"}};
  for (const auto& [closer, reason] : cases) {
    const Client client = connect();
    const Tensor x = Ones(*client.device("cpu:0"), {4});
    ASSERT_TRUE(client.Synchronize().ok());
    ASSERT_TRUE(CloseByNumber(closer, client.session_number()).ok());
    EXPECT_TRUE(Eventually([&client] { return !client.status().ok(); }));
    ExpectError(client.status(), Code::kDataLoss, {"tensors are gone", reason});
    ExpectError(client.Synchronize(), Code::kDataLoss, {reason});
    ExpectError((x + x).status(), Code::kDataLoss, {reason});
  }
  EXPECT_TRUE(connect().Synchronize().ok());
}

// The stream may not have ended yet when the first call fails.
TEST_F(SessionsTest, TheFirstCallAfterTheSessionWasClosedSaysSo) {
  for (int round = 0; round < 8; ++round) {
    const Client client = *Client::Connect(daemon_->address(), {.token = "a"});
    const Tensor x = Ones(*client.device("cpu:0"), {4});
    ASSERT_TRUE(client.Synchronize().ok());
    ASSERT_TRUE(CloseByNumber(*root_, client.session_number()).ok());
    const absl::Status first = x.Wait();
    ExpectError(first, Code::kDataLoss,
                {"no longer has the session", "closed", "tensors are gone", "connect again"});
    EXPECT_EQ(ErrorReason(first), "SESSION_NOT_FOUND");
    ExpectError(x.Read<float>(), Code::kDataLoss, {"tensors are gone"});
  }
}

TEST_F(SessionsTest, AnAdministratorCannotUseSessionsOfOthers) {
  RpcSession hers(*alice_);
  ASSERT_TRUE(hers.Ones(1, {4}).ok());
  v1::ReadTensorRequest read;
  read.set_session(hers.id());
  read.set_handle(1);
  ExpectError(root_->Call<v1::ReadTensorResponse>("ReadTensor", read), Code::kNotFound);
  const auto listed = ListSessions(*root_);
  ASSERT_TRUE(listed.ok()) << listed.status();
  EXPECT_THAT(listed->SerializeAsString(), Not(HasSubstr(hers.id()))) << "the id is a secret";
}

TEST_F(SessionsTest, AdministrationEndsWithTheTokensFlag) {
  const RpcSession hers(*alice_);
  folder_.Write("tokens", Line("alice", "a") + Line("bob", "root"));
  ASSERT_TRUE(Says("reloaded"));
  EXPECT_THAT(Owners(*root_), ElementsAre());
  ExpectError(CloseByNumber(*root_, 1), Code::kNotFound);
}

TEST_F(SessionsTest, CloseSessionRequiresEitherIdOrNumber) {
  const RpcSession hers(*alice_);
  v1::CloseSessionRequest request;
  ExpectError(alice_->Call<v1::CloseSessionResponse>("CloseSession", request),
              Code::kInvalidArgument, {"by its id", "by its number"});
  request.set_session(hers.id());
  request.set_session_number(1);
  ExpectError(alice_->Call<v1::CloseSessionResponse>("CloseSession", request),
              Code::kInvalidArgument, {"by its id", "by its number"});
}

TEST_F(SessionsTest, DescribesWhatASessionHoldsAndDoes) {
  v1::OpenSessionRequest open;
  open.set_client_name("trainer");
  open.set_lease_seconds(77);
  ASSERT_TRUE(alice_->Call<v1::Session>("OpenSession", open).ok());
  RpcSession busy(*bob_);
  ASSERT_TRUE(busy.Ones(1, {1 << 18}, "cpu:0").ok());
  ASSERT_TRUE(busy.Ones(2, {1 << 10}, "cpu:1").ok());
  EXPECT_EQ(FaultSocket(folder_.File("faults")).Send("cpu:0 delay-kernel 3600000"), "ok\n");
  auto stream = bob_->SessionStream();
  v1::SessionStreamRequest message = busy.Attach();
  for (uint64_t handle = 3; handle < 6; ++handle) {
    v1::Op* op = message.add_commands()->mutable_op();
    op->set_name("sum");
    op->add_inputs(1);
    op->set_output(handle);
  }
  ASSERT_TRUE(stream->Send(message));
  ASSERT_TRUE(Eventually([&] { return ListSessions(*root_)->sessions(1).ops_in_flight() == 3; }));
  const auto listed = ListSessions(*root_);
  ASSERT_EQ(listed->sessions_size(), 2);
  const v1::SessionInfo &idle = listed->sessions(0), &used = listed->sessions(1);
  EXPECT_EQ(idle.client_name(), "trainer");
  EXPECT_EQ(idle.lease_seconds(), 77);
  EXPECT_FALSE(idle.in_use());
  EXPECT_EQ(idle.handles(), 0);
  EXPECT_EQ(idle.memory_size(), 0);
  EXPECT_TRUE(used.in_use());
  EXPECT_EQ(used.idle_seconds(), 0);
  EXPECT_EQ(used.handles(), 5);
  ASSERT_EQ(used.memory_size(), 2);
  EXPECT_EQ(used.memory(0).device(), "cpu:0");
  // The op that runs has allocated its result.
  EXPECT_THAT(used.memory(0).used_bytes(), testing::AnyOf(1 << 20, (1 << 20) + 4));
  EXPECT_EQ(used.memory(1).used_bytes(), 1 << 12);
  daemon_->Signal(SIGKILL);
  stream->Finish().IgnoreError();
  stream.reset();
  EXPECT_TRUE(daemon_->WaitForEnd().ok());
  daemon_.reset();
}

TEST_F(SessionsTest, ListsSessionsInPages) {
  std::vector<RpcSession> open;
  for (int i = 0; i < 5; ++i) open.emplace_back(*alice_);
  v1::ListSessionsRequest request;
  request.set_page_size(2);
  std::vector<uint64_t> numbers;
  int pages = 0;
  do {
    const auto page = ListSessions(*alice_, request);
    ASSERT_TRUE(page.ok()) << page.status();
    for (const v1::SessionInfo& session : page->sessions()) {
      numbers.push_back(session.session_number());
    }
    request.set_page_token(page->next_page_token());
    ++pages;
  } while (!request.page_token().empty());
  EXPECT_THAT(numbers, ElementsAre(1, 2, 3, 4, 5));
  EXPECT_EQ(pages, 3);
  request.set_page_token("first");
  ExpectError(ListSessions(*alice_, request), Code::kInvalidArgument, {"page_token"});
  request.set_page_token("");
  request.set_page_size(-1);
  ExpectError(ListSessions(*alice_, request), Code::kInvalidArgument, {"page_size"});
}

TEST_F(SessionsTest, TensorctlListsAndClosesOwnSessions) {
  RpcSession first(*alice_), second(*alice_), his(*bob_);
  ASSERT_TRUE(first.Ones(1, {1 << 20}).ok());
  const CommandResult list = Tensorctl("a", "sessions");
  EXPECT_EQ(list.exit_code, 0) << list.err;
  EXPECT_THAT(list.out,
              AllOf(HasSubstr("alice"), HasSubstr("cpu:0 4.00 MiB"), Not(HasSubstr("bob"))));
  const CommandResult close = Tensorctl("a", "close 1 3 2");
  EXPECT_EQ(close.exit_code, 1) << "session 3 is bob's";
  EXPECT_EQ(close.out, "closed session 1: 1 tensor freed\nclosed session 2: 0 tensors freed\n");
  EXPECT_THAT(close.err, HasSubstr("tensorctl: no session 3;"));
  EXPECT_EQ(Tensorctl("a", "sessions").out, "no sessions\n");
  EXPECT_TRUE(his.Ones(1, {4}).ok());
  const CommandResult others = Tensorctl("a", "close --principal bob");
  EXPECT_EQ(others.exit_code, 1);
  EXPECT_THAT(others.err, HasSubstr("only an administrator"));
}

TEST_F(SessionsTest, TensorctlShowsAdministratorsWhoHoldsWhat) {
  RpcSession hers(*alice_), his(*bob_);
  ASSERT_TRUE(hers.Ones(1, {1 << 20}).ok());
  ASSERT_TRUE(his.CreateFloats(7, {3}).ok());
  const CommandResult all = Tensorctl("root", "tensors --all");
  EXPECT_EQ(all.exit_code, 0) << all.err;
  EXPECT_THAT(all.out, testing::ContainsRegex("principal +session +handle"));
  EXPECT_THAT(all.out,
              testing::ContainsRegex("alice +1 +1 +float32 +\\[1048576\\] +cpu:0 +4.00 MiB"));
  EXPECT_THAT(all.out, testing::ContainsRegex("bob +2 +7 +float32"));
  const auto json = nlohmann::json::parse(Tensorctl("root", "tensors --all --json").out);
  ASSERT_EQ(json["tensors"].size(), 2u);
  EXPECT_EQ(json["tensors"][1]["principal"], "bob");
  const CommandResult own = Tensorctl("a", "tensors");
  EXPECT_THAT(own.out, AllOf(HasSubstr("4.00 MiB"), Not(HasSubstr("principal"))));
  const CommandResult refused = Tensorctl("a", "tensors --all");
  EXPECT_EQ(refused.exit_code, 1);
  EXPECT_THAT(refused.err, HasSubstr("only an administrator"));
}

TEST_F(SessionsTest, TensorctlAdministratesAFullServer) {
  std::vector<RpcSession> open;
  for (int i = 0; i < 5; ++i) open.emplace_back(i == 3 ? *bob_ : *alice_);
  EXPECT_EQ(RpcSession(*alice_).id(), "") << "the server has its maximum of sessions";
  const CommandResult list = Tensorctl("root", "sessions --json");
  EXPECT_EQ(list.exit_code, 0) << list.err;
  const auto json = nlohmann::json::parse(list.out);
  EXPECT_EQ(json["servers"][0]["server"], daemon_->address());
  ASSERT_EQ(json["sessions"].size(), 5u);
  EXPECT_EQ(json["sessions"][3]["principal"], "bob");
  EXPECT_EQ(json["sessions"][3]["session_number"], 4);
  EXPECT_EQ(json["sessions"][3]["lease_seconds"], 30);
  const CommandResult close = Tensorctl("root", "close --principal alice");
  EXPECT_EQ(close.exit_code, 0) << close.err;
  EXPECT_THAT(close.out, HasSubstr("closed session 5: 0 tensors freed\n"));
  EXPECT_THAT(Owners(*root_), ElementsAre("bob"));
  EXPECT_EQ(Tensorctl("root", "close --principal alice").out,
            "no sessions of alice; \"tensorctl sessions\" lists sessions and their principals\n");
}

TEST_F(SessionsTest, TensorctlExplainsWhatIsWrong) {
  EXPECT_THAT(Tensorctl("", "sessions").err, HasSubstr("--token-file"));
  for (const char* arguments :
       {"close", "close 1 --principal bob", "close one", "close 0", "close --principal ''"}) {
    const CommandResult wrong = Tensorctl("root", arguments);
    EXPECT_EQ(wrong.exit_code, 2) << arguments;
    EXPECT_THAT(wrong.err, HasSubstr("tensorctl help")) << arguments;
  }
}

TEST_F(SessionsTest, AnonymousCallersSeeAllSessionsOfAnOpenServer) {
  alice_.reset();
  daemon_->ExpectTerminatesCleanly();
  StartDaemon({});
  RpcClient one(daemon_->address()), two(daemon_->address());
  const RpcSession first(one), second(two);
  EXPECT_THAT(Owners(one), ElementsAre("(anonymous)", "(anonymous)"));
  EXPECT_TRUE(CloseByNumber(one, 2).ok());
  EXPECT_THAT(Owners(two), ElementsAre("(anonymous)"));
  const CommandResult closed = Tensorctl("", "close --principal '(anonymous)'");
  EXPECT_EQ(closed.out, "closed session 1: 0 tensors freed\n");
}

// Callers from this machine without credentials aren't administrators.
TEST_F(SessionsTest, AnonymousLocalCallersSeeOnlyTheirOwn) {
  alice_.reset();
  daemon_->ExpectTerminatesCleanly();
  StartDaemon({"--token-file=" + folder_.File("tokens"), "--allow-anonymous-local"});
  RpcClient alice(daemon_->address(), {.token = "a"}), anonymous(daemon_->address());
  const RpcSession hers(alice), own(anonymous);
  EXPECT_THAT(Owners(anonymous), ElementsAre("(anonymous)"));
  ExpectError(CloseByNumber(anonymous, 1), Code::kNotFound);
}

}  // namespace
}  // namespace tensord::integration
