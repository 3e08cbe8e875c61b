// TLS connections, client certificates, and certificates that are replaced.
#include <sys/stat.h>

#include <cstdlib>

#include "tensord/client/tensord.h"
#include "tensord/tests/integration/identity_fixture.h"

namespace tensord::integration {
namespace {

using Code = absl::StatusCode;
using testing::HasSubstr;
using testing::Not;

// Without this, gRPC prints an error for each handshake that a test makes fail.
[[maybe_unused]] const bool kQuiet = setenv("GRPC_VERBOSITY", "NONE", /*overwrite=*/0) == 0;

class TlsTest : public IdentityFixture {
 protected:
  // Writes a server's certificate files. Returns the flags that name them.
  std::vector<std::string> ServerFlags(const CertificatePair& pair) {
    return {"--tls-cert=" + folder_.Write("server.pem", pair.cert),
            "--tls-key=" + folder_.Write("server.key", pair.key)};
  }

  void Start(std::vector<std::string> more) {
    std::vector<std::string> flags = ServerFlags(authority_.Issue(ServerRequest()));
    flags.insert(flags.end(), more.begin(), more.end());
    StartDaemon(flags);
  }

  absl::Status Connect(const RpcCredentials& credentials) {
    RpcClient client(daemon_->address(), credentials);
    client.set_deadline_seconds(10);
    return ListDevices(client).status();
  }

  RpcCredentials With(const CertificatePair& pair) const {
    return {.ca_pem = authority_.pem(), .cert_pem = pair.cert, .key_pem = pair.key};
  }

  Authority authority_;
};

TEST_F(TlsTest, ClientsVerifyTheServersCertificate) {
  Start({});
  EXPECT_TRUE(Connect({.ca_pem = authority_.pem()}).ok());
  EXPECT_FALSE(Connect({.ca_pem = Authority().pem()}).ok()) << "another authority";
  EXPECT_FALSE(Connect({}).ok()) << "without TLS";
}

TEST_F(TlsTest, OldVersionsAreRefused) {
  Start({});
  const auto speak = [&](const std::string& version) {
    return std::system(absl::StrCat("openssl s_client -connect ", daemon_->address(), " -alpn h2 ",
                                    version, " -cipher ALL@SECLEVEL=0 </dev/null >",
                                    folder_.File("log"), " 2>&1")
                           .c_str());
  };
  EXPECT_EQ(speak("-tls1_2"), 0);
  EXPECT_EQ(speak("-tls1_3"), 0);
  EXPECT_NE(speak("-tls1_1"), 0);
  EXPECT_NE(speak("-tls1"), 0);
}

TEST_F(TlsTest, ACertificateForAnotherNameIsRefused) {
  CertificateRequest request = ServerRequest();
  request.alternatives = {"DNS:elsewhere.example"};
  StartDaemon(ServerFlags(authority_.Issue(request)));
  EXPECT_FALSE(Connect({.ca_pem = authority_.pem()}).ok());
  // If the client expects that name, it accepts the certificate.
  ConnectOptions options;
  options.tls.ca_file = folder_.Write("ca", authority_.pem());
  options.tls.server_name = "elsewhere.example";
  const auto client = Client::Connect(daemon_->address(), options);
  EXPECT_TRUE(client.ok()) << client.status();
}

TEST_F(TlsTest, ServerVerifiesClientCertificates) {
  Start({"--tls-client-ca=" + folder_.Write("ca", authority_.pem())});
  EXPECT_TRUE(Connect(With(authority_.Issue(ClientRequest("alice")))).ok());
  EXPECT_FALSE(Connect({.ca_pem = authority_.pem()}).ok()) << "none";
  EXPECT_FALSE(Connect(With(Authority().Issue(ClientRequest("alice")))).ok()) << "not ours";
  EXPECT_FALSE(Connect(With(authority_.Issue(ServerRequest()))).ok()) << "a server's";
  CertificateRequest late = ClientRequest("alice");
  late.to_seconds = -60;
  EXPECT_FALSE(Connect(With(authority_.Issue(late))).ok()) << "expired";
}

TEST_F(TlsTest, CertificateNamesThePrincipal) {
  Start({"--tls-client-ca=" + folder_.Write("ca", authority_.pem())});
  RpcClient alice(daemon_->address(), With(authority_.Issue(ClientRequest("alice"))));
  RpcClient renewed(daemon_->address(), With(authority_.Issue(ClientRequest("alice"))));
  RpcClient bob(daemon_->address(), With(authority_.Issue(ClientRequest("bob"))));
  CertificateRequest host = ClientRequest("alice");
  host.alternatives = {"DNS:bob.example"};
  RpcClient named(daemon_->address(), With(authority_.Issue(host)));
  const RpcSession session(alice);
  ASSERT_FALSE(session.id().empty());
  v1::ListTensorsRequest request;
  request.set_session(session.id());
  EXPECT_TRUE(renewed.Call<v1::ListTensorsResponse>("ListTensors", request).ok());
  for (RpcClient* other : {&bob, &named}) {
    ExpectError(other->Call<v1::ListTensorsResponse>("ListTensors", request), Code::kNotFound,
                {"no such session"});
  }
}

TEST_F(TlsTest, TokenSufficesIfCertificatesAreOptional) {
  Start({"--tls-client-ca=" + folder_.Write("ca", authority_.pem()), "--tls-client-auth=optional",
         "--token-file=" + folder_.Write("tokens", Line("alice", kAlice))});
  const std::string& ca = authority_.pem();
  EXPECT_TRUE(Connect({.token = kAlice, .ca_pem = ca}).ok());
  EXPECT_TRUE(Connect(With(authority_.Issue(ClientRequest("carol")))).ok());
  ExpectError(Connect({.ca_pem = ca}), Code::kUnauthenticated, {"token", "certificate"});
  ExpectError(Connect({.token = "wrong", .ca_pem = ca}), Code::kUnauthenticated);
  // If both are presented, the token determines the identity. An invalid token is an error.
  RpcCredentials both = With(authority_.Issue(ClientRequest("carol")));
  both.token = "wrong";
  ExpectError(Connect(both), Code::kUnauthenticated);
}

TEST_F(TlsTest, NewConnectionsUseTheNewCertificate) {
  Start({});
  RpcClient standing(daemon_->address(), {.ca_pem = authority_.pem()});
  ASSERT_TRUE(ListDevices(standing).ok());
  const Authority other;
  ServerFlags(other.Issue(ServerRequest()));
  EXPECT_TRUE(Eventually([&] { return Connect({.ca_pem = other.pem()}).ok(); }));
  EXPECT_FALSE(Connect({.ca_pem = authority_.pem()}).ok());
  EXPECT_TRUE(ListDevices(standing).ok()) << "an open connection isn't affected";
}

TEST_F(TlsTest, BadPairChangesNothingAndIsReported) {
  Start({});
  const RpcCredentials good = {.ca_pem = authority_.pem()};
  const CertificatePair pair = authority_.Issue(ServerRequest());
  folder_.Write("server.pem", pair.cert);  // with another's key
  EXPECT_TRUE(Says("isn't that of the certificate"));
  EXPECT_TRUE(Connect(good).ok());
  CertificateRequest late = ServerRequest();
  late.to_seconds = -60;
  ServerFlags(authority_.Issue(late));
  EXPECT_TRUE(Says("has expired"));
  EXPECT_TRUE(Connect(good).ok());
  folder_.Write("server.key", "nonsense");
  EXPECT_TRUE(Says("no private key"));
  EXPECT_TRUE(Connect(good).ok());
  ServerFlags(pair);
  EXPECT_TRUE(Says("reloaded"));
  EXPECT_TRUE(Connect(good).ok());
}

// TLS verifies a certificate once, when the connection is made. The server ends open calls itself.
TEST_F(TlsTest, RemovedAuthorityEndsCallsOfItsClients) {
  Start({"--tls-client-ca=" + folder_.Write("ca", authority_.pem())});
  RpcClient client(daemon_->address(), With(authority_.Issue(ClientRequest("alice"))));
  const RpcSession session(client);
  auto stream = client.SessionStream();
  v1::SessionStreamRequest attach = session.Attach();
  ASSERT_TRUE(stream->Send(attach));
  ASSERT_TRUE(stream->Next().has_value());
  folder_.Write("ca", Authority().pem());
  EXPECT_FALSE(stream->Next().has_value());
  ExpectError(stream->Finish(), Code::kUnauthenticated, {"certificate"});
  ExpectError(ListDevices(client).status(), Code::kUnauthenticated, {"certificate"});
}

// The client library, with large tensors through shared memory and over the connection.
TEST_F(TlsTest, ClientLibraryWorksWithAToken) {
  Start({"--token-file=" + folder_.Write("tokens", Line("alice", kAlice))});
  ConnectOptions options;
  options.tls.ca_file = folder_.Write("ca", authority_.pem());
  options.token_file = folder_.Write("alice.token", std::string(kAlice) + "\n");
  for (const bool shared_memory : {true, false}) {
    options.shared_memory = shared_memory;
    auto client = Client::Connect(daemon_->address(), options);
    ASSERT_TRUE(client.ok()) << client.status();
    const Device device = client->TryDevice();
    const std::vector<float> values(4 << 20, 2.0f);  // 16 MiB
    const Tensor doubled = FromVector(device, values) * 2.0;
    const auto read = doubled.Read<float>();
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_EQ((*read)[values.size() - 1], 4.0f);
    EXPECT_TRUE(client->Synchronize().ok());
    EXPECT_EQ(client->stats().bytes_shared > 0, shared_memory);
  }
}

TEST_F(TlsTest, ClientLibraryReportsARevokedToken) {
  Start({"--token-file=" + folder_.Write("tokens", Line("alice", kAlice))});
  ConnectOptions options;
  options.tls.ca_file = folder_.Write("ca", authority_.pem());
  options.token = kAlice;
  auto client = Client::Connect(daemon_->address(), options);
  ASSERT_TRUE(client.ok()) << client.status();
  folder_.Write("tokens", "");
  EXPECT_TRUE(Eventually([&] { return absl::IsUnauthenticated(client->status()); }))
      << client->status();
  ExpectError(Client::Connect(daemon_->address(), options), Code::kUnauthenticated);
}

// The timeout is infinite in this test and in the next one. The failure itself ends the attempt.
TEST_F(TlsTest, ErrorSuggestsTls) {
  Start({});
  ExpectError(Client::Connect(daemon_->address(), {.connect_timeout = absl::InfiniteDuration()}),
              Code::kUnavailable,
              {daemon_->address(), "closes the connection", "TENSORD_TLS_CA", "--tls-ca",
               "not a tensord server"});
}

TEST(ClientCredentialsTest, NamesAHostThatCannotBeResolved) {
  ExpectError(
      Client::Connect("no-such-host.invalid:50051", {.connect_timeout = absl::InfiniteDuration()}),
      Code::kUnavailable, {"no-such-host.invalid:50051", "can't be resolved"});
}

// The numeric addresses are reserved for documentation, so no server listens on them.
TEST(ClientCredentialsTest, NeverSendsATokenUnencrypted) {
  ConnectOptions options;
  options.token = kAlice;
  options.connect_timeout = absl::Milliseconds(200);
  for (const char* address : {"192.0.2.1:1", "gpu-box:1", "127.example.com:1", "[2001:db8::1]:1"}) {
    const auto client = Client::Connect(address, options);
    ExpectError(client, Code::kFailedPrecondition, {"unencrypted", "TENSORD_TLS_CA", "--tls-ca"});
    EXPECT_THAT(std::string(client.status().message()), Not(HasSubstr(kAlice)));
  }
  options.tls.use = true;
  ExpectError(Client::Connect("192.0.2.1:1", options), Code::kUnavailable);
}

TEST(ClientCredentialsTest, BadFilesAreNamed) {
  const TestFolder folder;
  const std::string nonsense = folder.Write("nonsense", "nonsense");
  const auto connect = [](const ConnectOptions& options) {
    return Client::Connect("127.0.0.1:1", options).status();
  };
  ConnectOptions options;
  options.tls.ca_file = folder.File("none");
  ExpectError(connect(options), Code::kNotFound, {"none"});
  options.tls.ca_file = nonsense;
  ExpectError(connect(options), Code::kInvalidArgument, {"nonsense", "CERTIFICATE"});
  options.tls = {.cert_file = nonsense};
  ExpectError(connect(options), Code::kInvalidArgument, {"key"});
  options = {};
  options.token_file = folder.File("none");
  ExpectError(connect(options), Code::kNotFound, {"none"});
  options = {};
  options.token = "two words";
  const absl::Status status = connect(options);
  ExpectError(status, Code::kInvalidArgument, {"one word"});
  EXPECT_THAT(std::string(status.message()), Not(HasSubstr("two words")));
}

// Runs the programs together, as README.md describes.
class CredentialCommandsTest : public IdentityFixture {
 protected:
  int Run(const std::string& command) {
    return std::system(
        absl::StrCat("cd ", folder_.path(), " && exec 2>>log >>log && ", command).c_str());
  }
};

TEST_F(CredentialCommandsTest, TwoCommandsMakeCertificatesAndAToken) {
  ASSERT_EQ(Run(TENSORD_CERTS_PATH " certs --client carol"), 0);
  ASSERT_EQ(Run(TENSORCTL_PATH " token alice --add tokens >alice.token"), 0);
  StartDaemon({"--tls-cert=" + folder_.File("certs/server.pem"),
               "--tls-key=" + folder_.File("certs/server.key"),
               "--tls-client-ca=" + folder_.File("certs/ca.pem"), "--tls-client-auth=optional",
               "--token-file=" + folder_.File("tokens")});
  const std::string tensorctl =
      absl::StrCat(TENSORCTL_PATH " --server ", daemon_->address(), " --tls-ca certs/ca.pem ");
  EXPECT_EQ(Run(tensorctl + "health"), 0);
  EXPECT_NE(Run(tensorctl + "health --device cpu:0 >refused"), 0);
  EXPECT_EQ(Run("grep -q -e '--token-file FILE' refused"), 0);
  EXPECT_NE(Run(tensorctl + "devices 2>refused"), 0);
  EXPECT_EQ(Run("grep -q -e '--token-file FILE' refused"), 0);
  EXPECT_NE(Run(absl::StrCat(TENSORCTL_PATH " --server ", daemon_->address(), " health >plain")),
            0);
  EXPECT_EQ(Run("grep -q 'does it require TLS' plain"), 0);
  EXPECT_EQ(Run(tensorctl + "devices --token-file alice.token"), 0);
  EXPECT_EQ(Run(tensorctl + "health --device cpu:0 --token-file alice.token"), 0);
  EXPECT_EQ(Run("TENSORD_TOKEN_FILE=alice.token " + tensorctl + "tour"), 0);
  EXPECT_EQ(Run(tensorctl + "devices --tls-cert certs/client-carol.pem --tls-key "
                            "certs/client-carol.key"),
            0);
  // A second run changes no file. A run with another name replaces only the server's certificate.
  ASSERT_EQ(Run("cp -r certs before && " TENSORD_CERTS_PATH " certs --client carol"), 0);
  EXPECT_EQ(Run("diff -r before certs"), 0);
  ASSERT_EQ(Run(TENSORD_CERTS_PATH " certs localhost gpu-box 10.0.0.5 --client carol"), 0);
  EXPECT_EQ(Run("cmp before/ca.pem certs/ca.pem && cmp before/client-carol.pem "
                "certs/client-carol.pem && ! cmp before/server.pem certs/server.pem"),
            0);
  struct stat file = {};
  for (const char* name : {"ca.key", "server.key", "client-carol.key", "ca.pem"}) {
    ASSERT_EQ(stat(folder_.File(absl::StrCat("certs/", name)).c_str(), &file), 0);
    EXPECT_EQ(file.st_mode & 0777, 0600u) << name;
  }
}

}  // namespace
}  // namespace tensord::integration
