// Copies between servers that authenticate their callers.
#include "absl/strings/str_cat.h"
#include "tensord/common/status_details.h"
#include "tensord/tests/integration/identity_fixture.h"
#include "tensord/tests/integration/peer_fixture.h"

namespace tensord::integration {
namespace {

using Code = absl::StatusCode;

// Two daemons with TLS and one token file, as one operator's servers have.
class PullIdentityTest : public IdentityFixture {
 protected:
  std::vector<std::string> Flags(std::vector<std::string> more) {
    const CertificatePair pair = authority_.Issue(ServerRequest());
    std::vector<std::string> flags = {
        "--tls-cert=" + folder_.Write("server.pem", pair.cert),
        "--tls-key=" + folder_.Write("server.key", pair.key),
        "--token-file=" +
            folder_.Write("tokens", absl::StrCat(Line("alice", "alices"), Line("bob", "bobs"),
                                                 Line("server-b", "the-servers"))),
        "--peer-timeout-seconds=2",
        Node::kAnyPeer,
        "--peer-tls-ca=" + folder_.Write("ca.pem", authority_.pem())};
    flags.insert(flags.end(), more.begin(), more.end());
    return flags;
  }
  RpcCredentials As(const std::string& token) const {
    return {.token = token, .ca_pem = authority_.pem()};
  }
  std::string ServersToken() {
    return "--peer-token-file=" + folder_.Write("servers.token", "the-servers\n");
  }
  v1::CheckPeerResponse Check(Node& node, const Node& other) {
    v1::CheckPeerRequest request;
    request.set_address(other.info.peer_address());
    const auto checked = node.client->Call<v1::CheckPeerResponse>("CheckPeer", request);
    EXPECT_TRUE(checked.ok()) << checked.status();
    return checked.ok() ? *checked : v1::CheckPeerResponse();
  }

  Authority authority_;
};

TEST_F(PullIdentityTest, CopiesBetweenTrustedServers) {
  Node a(Flags({"--peer-principals=server-a,server-b"}), As("alices"));
  Node b(Flags({ServersToken()}), As("alices"));
  const v1::CheckPeerResponse checked = Check(b, a);
  EXPECT_EQ(checked.code(), 0) << checked.message();
  EXPECT_EQ(checked.server().epoch(), a.info.epoch());
  EXPECT_GT(checked.round_trip_nanoseconds(), 0);
  a.Random(1, 1 << 20);
  const auto pulled = b.Pull(2, kMillion, a, a.Ticket(1, b)->ticket());
  ASSERT_TRUE(pulled.ok()) << pulled.status();
  EXPECT_EQ(*b.Bytes(2), *a.Bytes(1));
}

TEST_F(PullIdentityTest, OnlyItsPrincipalMayUseATicket) {
  Node a(Flags({"--peer-principals=server-b"}), As("alices"));
  Node b(Flags({ServersToken()}), As("bobs"));
  a.Random(1, 1 << 20);
  const std::string ticket = a.Ticket(1, b)->ticket();
  b.Promise(2, kMillion);
  ExpectError(b.Pull(2, kMillion, a, ticket), Code::kPermissionDenied, {"ticket"});
  EXPECT_EQ(b.Upload(2)->received_bytes(), 0) << "still promised";
  b.Connect(As("alices"));
  EXPECT_TRUE(b.Pull(2, kMillion, a, ticket).ok()) << "and it was not used up";
}

TEST_F(PullIdentityTest, OnlyPeerPrincipalsMayFetch) {
  Node a(Flags({}), As("alices"));
  Node b(Flags({ServersToken()}), As("alices"));
  Node other(Flags({}), As("alices"));
  a.Random(1, 1 << 20);
  ExpectError(b.Pull(2, kMillion, a, a.Ticket(1, b)->ticket()), Code::kPermissionDenied,
              {"--peer-principals", "\"server-b\" by its token"});
  ExpectError(other.Pull(2, kMillion, a, a.Ticket(1, other)->ticket()), Code::kPermissionDenied,
              {"token"});
  EXPECT_EQ(Check(b, a).code(), static_cast<int>(Code::kPermissionDenied));
  EXPECT_EQ(Check(b, a).server().epoch(), a.info.epoch()) << "reached, though";
  EXPECT_EQ(Check(other, a).code(), static_cast<int>(Code::kUnauthenticated));
  // A client may not call Fetch either.
  const absl::Status direct = a.client->CallAnyKind("/tensord.v1.PeerService/Fetch", "");
  EXPECT_EQ(direct.code(), Code::kPermissionDenied);
  EXPECT_EQ(ErrorReason(direct), "NOT_A_PEER");
}

TEST_F(PullIdentityTest, RejectsAServerOfAnotherAuthority) {
  Node b(Flags({ServersToken()}), As("alices"));
  const std::string ca = authority_.pem();
  authority_ = Authority();
  Node a(Flags({"--peer-principals=server-b"}), As("alices"));
  folder_.Write("ca.pem", ca);
  a.Random(1, 1 << 20);
  ExpectError(b.Pull(2, kMillion, a, a.Ticket(1, b)->ticket()), Code::kPermissionDenied,
              {"--peer-tls-ca"});
}

// The calling server sees only that the other server closes the connection.
TEST_F(PullIdentityTest, ClosedConnectionSuggestsAnotherCertificate) {
  const CertificatePair ours = authority_.Issue(ClientRequest("alice"));
  Node a(Flags({"--tls-client-ca=" + folder_.Write("clients.pem", authority_.pem()),
                "--tls-client-auth=require", "--peer-principals=cn:b"}),
         {.ca_pem = authority_.pem(), .cert_pem = ours.cert, .key_pem = ours.key});
  const CertificatePair strange = Authority().Issue(ClientRequest("b"));
  Node b(Flags({"--peer-tls-cert=" + folder_.Write("b.pem", strange.cert),
                "--peer-tls-key=" + folder_.Write("b.key", strange.key)}),
         As("alices"));
  const v1::CheckPeerResponse refused = Check(b, a);
  EXPECT_EQ(refused.code(), static_cast<int>(Code::kUnauthenticated)) << refused.message();
  EXPECT_THAT(refused.message(), testing::AllOf(testing::HasSubstr("--tls-client-auth=require"),
                                                testing::HasSubstr("--peer-tls-cert")));
  const CertificatePair good = authority_.Issue(ClientRequest("b"));
  folder_.Write("b.key", good.key);
  folder_.Write("b.pem", good.cert);
  EXPECT_TRUE(Eventually([&] { return Check(b, a).code() == 0; })) << Check(b, a).message();
}

TEST_F(PullIdentityTest, ReloadsThePeerToken) {
  Node a(Flags({"--peer-principals=server-b"}), As("alices"));
  Node b(Flags({"--peer-token-file=" + folder_.Write("servers.token", "old-token")}), As("alices"));
  a.Random(1, 1 << 20);
  ExpectError(b.Pull(2, kMillion, a, a.Ticket(1, b)->ticket()), Code::kPermissionDenied, {"token"});
  folder_.Write("servers.token", "the-servers");
  EXPECT_TRUE(Eventually([&] { return b.Pull(2, kMillion, a, a.Ticket(1, b)->ticket()).ok(); }));
}

TEST(PeerFlagsTest, RefusesInvalidFlags) {
  const TestFolder folder;
  const std::string token = "--peer-token-file=" + folder.Write("token", "the-servers");
  const std::vector<std::pair<std::vector<std::string>, std::vector<std::string>>> cases = {
      {{"--peers=gpu-a"}, {"gpu-a", "--peers"}},
      {{"--peers=*:50051"}, {"*:50051"}},
      {{"--peers=unix:/tmp/x"}, {"unix:/tmp/x"}},
      {{"--peers=gpu-a:50051", token}, {"gpu-a:50051", "unencrypted", "--peer-tls-ca"}},
      {{"--peers=*.cluster:50051", token}, {"unencrypted"}},
      {{"--peers=127.0.0.1:1", "--peer-token-file=" + folder.File("none")}, {"none"}},
      {{"--peer-tls-cert=x"}, {"--peer-tls-key"}},
      {{"--advertise=nowhere"}, {"nowhere", "HOST:PORT"}},
  };
  for (const auto& [flags, words] : cases) {
    std::vector<std::string> all = {"--listen=127.0.0.1:0", "--devices=cpu"};
    all.insert(all.end(), flags.begin(), flags.end());
    std::string output;
    EXPECT_NE(*RunDaemon(all, &output), 0) << flags[0];
    for (const std::string& word : words) EXPECT_THAT(output, testing::HasSubstr(word));
  }
}

}  // namespace
}  // namespace tensord::integration
