// Authentication and authorization: every method with every kind of credentials, and calls and
// sessions whose token expires or is revoked.
#include <grpcpp/create_channel.h>
#include <signal.h>
#include <sys/stat.h>

#include <set>

#include "absl/strings/match.h"
#include "grpc/health/v1/health.grpc.pb.h"
#include "tensord/tests/integration/identity_fixture.h"

namespace tensord::integration {
namespace {

using Code = absl::StatusCode;
using testing::HasSubstr;
using testing::Not;

constexpr char kExpired[] = "expired-token";
constexpr char kRevoked[] = "revoked-token";
constexpr char kUnknown[] = "unknown-token";

class TokenTest : public IdentityFixture {
 protected:
  void SetUp() override {
    WriteTokens(Line("revoked", kRevoked));
    StartDaemon({"--token-file=" + folder_.File("tokens")});
  }

  // Writes a token file with Alice's and Bob's tokens, an expired token and the lines `more`.
  void WriteTokens(const std::string& more) {
    folder_.Write("tokens",
                  absl::StrCat("# for tests\n\n", Line("alice", kAlice), Line("bob", kBob),
                               Line("alice", kExpired, absl::Now() - absl::Seconds(1)), more));
  }

  // Removes a token from the file and waits until the daemon refuses it. The lines `left` stay.
  void Revoke(const std::string& token, const std::string& left = "") {
    ASSERT_TRUE(Ask(token).ok());
    WriteTokens(left);
    ASSERT_TRUE(Eventually([&] { return absl::IsUnauthenticated(Ask(token)); }));
  }
};

// Sets the session's id in the request, or in its submessage that opens a stream. Returns false if
// the request has no such field.
bool SetSession(google::protobuf::Message* message, const std::string& session) {
  const auto* descriptor = message->GetDescriptor();
  const auto* field = descriptor->FindFieldByName("session");
  if (field != nullptr && field->type() == google::protobuf::FieldDescriptor::TYPE_STRING) {
    message->GetReflection()->SetString(message, field, session);
    return true;
  }
  for (int i = 0; i < descriptor->field_count(); ++i) {
    const auto* part = descriptor->field(i);
    const bool fits = part->message_type() != nullptr && !part->is_repeated() &&
                      part->message_type()->FindFieldByName("session") != nullptr;
    if (fits) {
      return SetSession(message->GetReflection()->MutableMessage(message, part), session);
    }
  }
  return false;
}

// Calls any method with a session's id. Sets `*has_session` to whether its request has a session.
absl::Status CallMethod(RpcClient& client, const google::protobuf::MethodDescriptor& method,
                        const std::string& session, bool* has_session = nullptr) {
  const std::unique_ptr<google::protobuf::Message> request(
      google::protobuf::MessageFactory::generated_factory()
          ->GetPrototype(method.input_type())
          ->New());
  const bool has = SetSession(request.get(), session);
  if (has_session != nullptr) *has_session = has;
  return client.CallAnyKind(absl::StrCat("/", method.service()->full_name(), "/", method.name()),
                            request->SerializeAsString());
}

std::vector<const google::protobuf::MethodDescriptor*> AllMethods() {
  std::vector<const google::protobuf::MethodDescriptor*> methods;
  for (const char* name : {"TensorService", "PeerService"}) {
    const auto* service = v1::ServerInfo::descriptor()->file()->FindServiceByName(name);
    for (int i = 0; i < service->method_count(); ++i) methods.push_back(service->method(i));
  }
  return methods;
}

TEST_F(TokenTest, EveryMethodRefusesInvalidTokens) {
  ASSERT_GE(AllMethods().size(), 19u);
  Revoke(kRevoked);
  RpcClient alice(daemon_->address(), {.token = kAlice});
  const RpcSession session(alice);
  ASSERT_FALSE(session.id().empty());
  for (const char* token : {"", kUnknown, kExpired, kRevoked}) {
    RpcClient anonymous(daemon_->address(), {.token = token});
    for (const auto* method : AllMethods()) {
      const absl::Status status = CallMethod(anonymous, *method, session.id());
      ExpectError(status, Code::kUnauthenticated, {"token"});
      EXPECT_TRUE(*token == 0 || !absl::StrContains(status.message(), token))
          << method->name() << " repeats the secret";
    }
  }
}

TEST_F(TokenTest, EveryMethodHidesSessionsOfOtherPrincipals) {
  RpcClient alice(daemon_->address(), {.token = kAlice});
  RpcClient bob(daemon_->address(), {.token = kBob});
  const absl::Status never = RpcSession(bob)
                                 .client()
                                 .Call<v1::Tensor>("GetTensor",
                                                   [] {
                                                     v1::GetTensorRequest request;
                                                     request.set_session(std::string(32, '0'));
                                                     return request;
                                                   }())
                                 .status();
  ASSERT_EQ(never.code(), Code::kNotFound);
  const std::set<std::string> kMethodsWithoutSession = {
      "GetServerInfo", "ListDevices", "ListOps", "OpenSession", "ListSessions", "CheckPeer"};
  for (const auto* method : AllMethods()) {
    const RpcSession session(alice);
    ASSERT_FALSE(session.id().empty());
    bool has_session = false;
    const absl::Status status = CallMethod(bob, *method, session.id(), &has_session);
    if (method->service()->name() == "PeerService") {
      ExpectError(status, Code::kPermissionDenied, {"--peer-principals"});
      continue;
    }
    const bool may_have_none = kMethodsWithoutSession.contains(method->name());
    EXPECT_EQ(has_session, !may_have_none) << method->name() << ": see kMethodsWithoutSession";
    if (!has_session) {
      EXPECT_TRUE(status.ok()) << method->name() << ": " << status;
      continue;
    }
    EXPECT_EQ(status, never) << method->name();
    EXPECT_NE(CallMethod(alice, *method, session.id()), never) << method->name();
  }
}

TEST_F(TokenTest, CallersSeeOnlyTheirOwnTensors) {
  RpcClient alice(daemon_->address(), {.token = kAlice});
  RpcClient bob(daemon_->address(), {.token = kBob});
  RpcSession hers(alice);
  RpcSession his(bob);
  ASSERT_TRUE(hers.CreateFloats(1, {1, 2}).ok());
  ASSERT_TRUE(his.CreateFloats(2, {3}).ok());
  ExpectError(his.ReadFloats(1), Code::kNotFound, {"no tensor 1"});
  for (auto* session : {&hers, &his}) {
    v1::ListTensorsRequest request;
    request.set_session("-");
    const auto listed = session->client().Call<v1::ListTensorsResponse>("ListTensors", request);
    ASSERT_TRUE(listed.ok()) << listed.status();
    ASSERT_EQ(listed->tensors_size(), 1);
    EXPECT_EQ(listed->tensors(0).handle(), session == &hers ? 1u : 2u);
  }
}

TEST_F(TokenTest, TwoTokensOfOneNameAreOnePrincipal) {
  WriteTokens(Line("alice", "another"));
  ASSERT_TRUE(Eventually([&] { return Ask("another").ok(); }));
  RpcClient first(daemon_->address(), {.token = kAlice});
  RpcClient second(daemon_->address(), {.token = "another"});
  RpcSession session(first);
  ASSERT_TRUE(session.CreateFloats(1, {1}).ok());
  v1::ReadTensorRequest request;
  request.set_session(session.id());
  request.set_handle(1);
  EXPECT_TRUE(second.Call<v1::ReadTensorResponse>("ReadTensor", request).ok());
}

TEST_F(TokenTest, InvalidHeadersAreRefused) {
  for (const std::string& header :
       {std::string("Bearer"), std::string("Basic YTpi"), std::string("Bearer "),
        std::string("Bearer ") + std::string(4000, 'x')}) {
    const auto channel =
        grpc::CreateChannel(daemon_->address(), grpc::InsecureChannelCredentials());
    grpc::ClientContext context;
    context.AddMetadata("authorization", header);
    grpc::health::v1::HealthCheckRequest request;
    request.set_service("cpu:0");
    grpc::health::v1::HealthCheckResponse response;
    const auto status =
        grpc::health::v1::Health::NewStub(channel)->Check(&context, request, &response);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAUTHENTICATED) << header;
  }
}

TEST_F(TokenTest, ProbeWithoutTokenGetsOnlyTheServersHealth) {
  RpcClient anonymous(daemon_->address());
  EXPECT_EQ(*anonymous.Health(""), "SERVING");
  ExpectError(anonymous.Health("cpu:0"), Code::kUnauthenticated);
  ExpectError(anonymous.Health("cpu:9"), Code::kUnauthenticated);
  ExpectError(anonymous.CallAnyKind("/grpc.health.v1.Health/Watch", ""), Code::kUnauthenticated);
  RpcClient alice(daemon_->address(), {.token = kAlice});
  EXPECT_EQ(*alice.Health("cpu:0"), "SERVING");
}

// Each open call of a revoked token ends with the reason.
TEST_F(TokenTest, RevocationEndsOpenCalls) {
  RpcClient client(daemon_->address(), {.token = kRevoked});
  RpcSession session(client);
  ASSERT_TRUE(session.CreateFloats(1, {1}).ok());

  auto stream = client.SessionStream();
  v1::SessionStreamRequest attach = session.Attach();
  ASSERT_TRUE(stream->Send(attach));
  ASSERT_TRUE(stream->Next().has_value());
  auto shared = client.SharedMemory();
  v1::SharedMemoryRequest open;
  open.mutable_open()->set_session(session.id());
  ASSERT_TRUE(shared->Send(open));
  ASSERT_TRUE(shared->Next().has_value());
  auto write = client.Write();
  ASSERT_TRUE(write->Send(session.FirstWrite(2, {DType::kFloat32, {1000}})));
  // These calls wait for a command that never arrives.
  std::vector<std::thread> waiting;
  waiting.emplace_back([&] { ExpectError(session.Get(5, 1000), Code::kUnauthenticated); });
  waiting.emplace_back([&] {
    v1::ReadRequest request = session.ReadRequest(5);
    request.set_after_command(1000);
    auto read = client.Read(request);
    EXPECT_FALSE(read->Next().has_value());
    ExpectError(read->Finish(), Code::kUnauthenticated, {"revoked"});
  });
  waiting.emplace_back([&] {
    ExpectError(client.CallAnyKind("/grpc.health.v1.Health/Watch", ""), Code::kUnauthenticated,
                {"revoked"});
  });

  Revoke(kRevoked);
  EXPECT_FALSE(stream->Next().has_value());
  ExpectError(stream->Finish(), Code::kUnauthenticated, {"revoked"});
  EXPECT_FALSE(shared->Next().has_value());
  ExpectError(shared->Finish(), Code::kUnauthenticated, {"revoked"});
  ExpectError(write->Finish(), Code::kUnauthenticated, {"revoked"});
  for (std::thread& thread : waiting) thread.join();
}

// A client that reads nothing can't receive the error. Its memory is freed all the same.
TEST_F(TokenTest, RevocationEndsAReadWhoseClientDoesNotRead) {
  RpcClient client(daemon_->address(), {.token = kRevoked});
  RpcSession session(client, kShortLeaseSeconds);
  ASSERT_TRUE(session.Ones(1, {32 << 20}).ok());
  auto read = client.Read(session.ReadRequest(1));
  ASSERT_TRUE(read->Next().has_value());
  Revoke(kRevoked);
  RpcClient alice(daemon_->address(), {.token = kAlice});
  EXPECT_TRUE(Eventually([&] { return UsedBytes(alice, "cpu:0") == 0; }));
}

TEST_F(TokenTest, ExpiryOfATokenEndsItsStream) {
  // The token is valid for long enough that the calls below succeed on a busy machine.
  WriteTokens(Line("expiring", "expiring", absl::Now() + absl::Seconds(8)));
  daemon_->Signal(SIGHUP);  // reloads the file at once
  ASSERT_TRUE(Eventually([&] { return Ask("expiring").ok(); }));
  RpcClient client(daemon_->address(), {.token = "expiring"});
  const RpcSession session(client);
  auto stream = client.SessionStream();
  v1::SessionStreamRequest attach = session.Attach();
  ASSERT_TRUE(stream->Send(attach));
  while (stream->Next().has_value()) {
  }
  ExpectError(stream->Finish(), Code::kUnauthenticated, {"expired"});
  ExpectError(Ask("expiring"), Code::kUnauthenticated, {"expired"});
}

// A session belongs to a principal. After its token is revoked, another token of the same principal
// can use the session, but no other principal can.
TEST_F(TokenTest, SessionsOutliveTheirRevokedToken) {
  auto client = std::make_unique<RpcClient>(daemon_->address(), RpcCredentials{.token = kRevoked});
  const RpcSession session(*client);
  v1::ReadTensorRequest request;
  request.set_session(session.id());
  request.set_handle(7);
  Revoke(kRevoked, Line("revoked", "newer"));
  ExpectError(client->Call<v1::ReadTensorResponse>("ReadTensor", request), Code::kUnauthenticated);
  RpcClient bob(daemon_->address(), {.token = kBob});
  ExpectError(bob.Call<v1::ReadTensorResponse>("ReadTensor", request), Code::kNotFound,
              {"no such session"});
  RpcClient newer(daemon_->address(), {.token = "newer"});
  ExpectError(newer.Call<v1::ReadTensorResponse>("ReadTensor", request), Code::kNotFound,
              {"no tensor 7"});
}

TEST_F(TokenTest, LeaseFreesTensorsOfARevokedToken) {
  RpcClient client(daemon_->address(), {.token = kRevoked});
  RpcSession session(client, kShortLeaseSeconds);
  ASSERT_TRUE(session.Ones(1, {1000}).ok());
  Revoke(kRevoked);
  RpcClient alice(daemon_->address(), {.token = kAlice});
  EXPECT_TRUE(Eventually([&] { return UsedBytes(alice, "cpu:0") == 0; }));
}

TEST_F(TokenTest, BadFileChangesNothingAndIsReported) {
  folder_.Write("tokens", absl::StrCat(Line("alice", kAlice), "bob sha256:12345\n"));
  EXPECT_TRUE(Says("line 2"));
  EXPECT_TRUE(Ask(kBob).ok());
  EXPECT_THAT(daemon_->Output(), Not(HasSubstr("12345")));
  // The daemon also ignores a file that other users may write.
  const std::string writable = folder_.Write("writable", Line("mallory", kUnknown));
  ASSERT_EQ(chmod(writable.c_str(), 0666), 0);
  ASSERT_EQ(std::rename(writable.c_str(), folder_.File("tokens").c_str()), 0);
  EXPECT_TRUE(Says("chmod go-w"));
  EXPECT_TRUE(Ask(kBob).ok());
}

TEST_F(TokenTest, KeepsItsTokensIfAPipeReplacesTheFile) {
  const std::string pipe = folder_.File("pipe");
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  ASSERT_EQ(std::rename(pipe.c_str(), folder_.File("tokens").c_str()), 0);
  EXPECT_TRUE(Says("tokens is not a regular file"));
  EXPECT_TRUE(Ask(kBob).ok());
}

TEST_F(TokenTest, KeepsItsTokensIfTheFileIsHuge) {
  const std::string huge = folder_.Write("huge", Line("mallory", kUnknown));
  ASSERT_EQ(truncate(huge.c_str(), 1 << 30), 0);
  ASSERT_EQ(std::rename(huge.c_str(), folder_.File("tokens").c_str()), 0);
  EXPECT_TRUE(Says("tokens is larger than 16 MiB"));
  EXPECT_TRUE(Ask(kBob).ok());
  EXPECT_LT(daemon_->MemoryBytes("VmHWM"), 1 << 30);
}

// An administrator who deletes the last line of the file revokes its token.
TEST_F(TokenTest, EmptyFileRevokesAllTokens) {
  folder_.Write("tokens", "");
  EXPECT_TRUE(Says("tokens: 0 tokens"));
  ExpectError(Ask(kBob), Code::kUnauthenticated);
}

TEST_F(TokenTest, SighupReloadsTheFileAtOnce) {
  WriteTokens("");
  daemon_->Signal(SIGHUP);
  EXPECT_TRUE(Says("tokens: 3 tokens"));
  EXPECT_TRUE(Ask(kAlice).ok());
}

class LogTest : public IdentityFixture {};

TEST_F(LogTest, LogsSessionsAndRefusedCallers) {
  folder_.Write("tokens", Line("alice", kAlice));
  StartDaemon({"--token-file=" + folder_.File("tokens"), "--log-sessions"});
  ExpectError(Ask(kUnknown), Code::kUnauthenticated);
  EXPECT_TRUE(Says("tensord: refused 127.0.0.1:"));
  RpcClient alice(daemon_->address(), {.token = kAlice});
  v1::OpenSessionRequest request;
  request.set_lease_seconds(1);
  request.set_client_name("first\ntensord: refused everybody\n");
  ASSERT_TRUE(alice.Call<v1::Session>("OpenSession", request).ok());
  EXPECT_TRUE(Says("session 1 of alice by a token opened by \"first\\ntensord: refused"));
  EXPECT_TRUE(Says("session 1 of alice by a token expired, 0 tensors freed\n"));
  RpcSession second(alice);
  ASSERT_TRUE(second.CreateFloats(1, {1}).ok());
  ASSERT_TRUE(second.Close().ok());
  EXPECT_TRUE(Says("session 2 of alice by a token closed, 1 tensor freed\n"));
  EXPECT_THAT(daemon_->Output(), Not(HasSubstr(kUnknown)));
  EXPECT_THAT(daemon_->Output(), Not(HasSubstr("\ntensord: refused everybody")));
}

class AnonymousTest : public IdentityFixture {};

TEST_F(AnonymousTest, LocalCallersNeedNoTokenIfAllowed) {
  const std::string socket = "unix:" + folder_.File("socket");
  folder_.Write("tokens", Line("alice", kAlice));
  StartDaemon(
      {"--token-file=" + folder_.File("tokens"), "--allow-anonymous-local", "--listen=" + socket});
  EXPECT_TRUE(Ask("").ok());
  RpcClient by_socket(socket);
  EXPECT_TRUE(ListDevices(by_socket).ok());
  ExpectError(Ask(kUnknown), Code::kUnauthenticated);
  // Anonymous callers are a separate principal.
  RpcClient alice(daemon_->address(), {.token = kAlice});
  const RpcSession session(alice);
  v1::CloseSessionRequest request;
  request.set_session(session.id());
  ExpectError(by_socket.Call<v1::CloseSessionResponse>("CloseSession", request), Code::kNotFound);
}

TEST_F(AnonymousTest, UnixSocketsRequireTokensToo) {
  const std::string socket = "unix:" + folder_.File("socket");
  folder_.Write("tokens", Line("alice", kAlice));
  StartDaemon({"--token-file=" + folder_.File("tokens"), "--listen=" + socket});
  RpcClient anonymous(socket);
  ExpectError(ListDevices(anonymous).status(), Code::kUnauthenticated);
  RpcClient alice(socket, {.token = kAlice});
  EXPECT_TRUE(ListDevices(alice).ok());
}

TEST(StartTest, RefusesUnsafeFlags) {
  const TestFolder folder;
  const Authority authority;
  const CertificatePair pair = authority.Issue(ServerRequest());
  CertificateRequest late = ServerRequest();
  late.to_seconds = -60;
  const CertificatePair expired = authority.Issue(late);
  const std::string cert = "--tls-cert=" + folder.Write("cert", pair.cert);
  const std::string key = "--tls-key=" + folder.Write("key", pair.key);
  const std::string ca = "--tls-client-ca=" + folder.Write("ca", authority.pem());
  const std::string tokens = "--token-file=" + folder.Write("tokens", "");
  const std::string everywhere = "--listen=0.0.0.0:0";
  const std::string pipe = folder.File("pipe");
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  const std::vector<std::pair<std::vector<std::string>, std::vector<std::string>>> cases = {
      {{everywhere}, {"--tls-cert", "--token-file", "--tls-client-ca", "--allow-insecure-remote"}},
      {{everywhere, tokens}, {"--tls-cert", "--allow-insecure-remote"}},
      {{everywhere, cert, key}, {"--token-file", "--tls-client-ca", "--allow-insecure-remote"}},
      {{cert}, {"--tls-key"}},
      {{ca}, {"--tls-cert"}},
      {{tokens, "--reflection"}, {"--reflection", "--token-file"}},
      {{cert, key, ca, "--listen=unix:" + folder.File("socket")}, {"--allow-anonymous-local"}},
      {{"--token-file=" + folder.File("none")}, {"none"}},
      {{"--token-file=" + pipe}, {"is not a regular file"}},
      {{"--token-file=" + folder.Write("bad", "alice\n")}, {"bad", "line 1"}},
      {{"--tls-cert=" + folder.Write("expired", expired.cert),
        "--tls-key=" + folder.Write("expired_key", expired.key)},
       {"expired at"}},
      {{cert, "--tls-key=" + folder.File("expired_key")}, {"isn't that of the certificate"}},
      {{cert, "--tls-key=" + folder.File("cert")}, {"no private key"}},
      {{"--tls-cert=" + folder.File("key"), key}, {"no certificate"}},
      {{cert, key, "--tls-client-ca=" + folder.File("key")}, {"no certificate"}}};
  for (auto [flags, words] : cases) {
    std::string output;
    flags.push_back("--devices=cpu");
    flags.push_back("--listen=127.0.0.1:0");
    const auto exit_code = RunDaemon(flags, &output);
    ASSERT_TRUE(exit_code.ok()) << exit_code.status();
    EXPECT_EQ(*exit_code, 1) << output;
    for (const std::string& word : words) EXPECT_THAT(output, HasSubstr(word));
  }
}

}  // namespace
}  // namespace tensord::integration
