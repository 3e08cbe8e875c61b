// The servers that may be called, and the callers that may act as a server.
#include "tensord/server/rpc/peer/peers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tensord/tests/unit/session/test_principal.h"

namespace tensord::server {
namespace {

using testing::HasSubstr;

bool Listed(const std::string& pattern, const std::string& address) {
  const auto peers = Peers::Make({.peers = {"elsewhere:1", pattern}}, {});
  EXPECT_TRUE(peers.ok()) << peers.status();
  return peers.ok() && (*peers)->CheckListed(address).ok();
}

TEST(PeersTest, ConnectsOnlyToListedAddresses) {
  EXPECT_TRUE(Listed("gpu-a:50051", "gpu-a:50051"));
  EXPECT_TRUE(Listed("gpu-a:50051", "GPU-A:50051"));
  EXPECT_FALSE(Listed("gpu-a:50051", "gpu-a:50052"));
  EXPECT_FALSE(Listed("gpu-a:50051", "gpu-a:050051"));
  EXPECT_FALSE(Listed("gpu-a:50051", "gpu-a"));
  EXPECT_FALSE(Listed("gpu-a:50051", "gpu-a.example:50051"));
  EXPECT_FALSE(Listed("gpu-a:50051", "gpu-b:50051"));
  EXPECT_FALSE(Listed("gpu-a:50051", " gpu-a:50051"));
  EXPECT_TRUE(Listed("127.0.0.1:*", "127.0.0.1:7"));
  EXPECT_FALSE(Listed("127.0.0.1:*", "127.0.0.1:0"));
  EXPECT_FALSE(Listed("127.0.0.1:*", "127.0.0.1:*"));
  EXPECT_FALSE(Listed("127.0.0.1:*", "127.0.0.1:70000"));
  EXPECT_FALSE(Listed("127.0.0.1:*", "127.0.0.11:7"));
  EXPECT_TRUE(Listed("[2001:db8::1]:50051", "[2001:DB8::1]:50051"));
  EXPECT_FALSE(Listed("[::1]:*", "::1:7"));
}

TEST(PeersTest, DomainMatchesOnlyAfterADot) {
  EXPECT_TRUE(Listed("*.gpus.example:*", "a.gpus.example:1"));
  EXPECT_TRUE(Listed("*.gpus.example:*", "a.b.gpus.example:1"));
  EXPECT_FALSE(Listed("*.gpus.example:*", "gpus.example:1"));
  EXPECT_FALSE(Listed("*.gpus.example:*", ".gpus.example:1"));
  EXPECT_FALSE(Listed("*.gpus.example:*", "agpus.example:1"));
  EXPECT_FALSE(Listed("*.gpus.example:*", "a.gpus.example.evil:1"));
  EXPECT_FALSE(Listed("*.gpus.example:*", "*.gpus.example:1"));
}

TEST(PeersTest, RejectsOtherKindsOfAddresses) {
  for (const char* address :
       {"", ":", ":1", "unix:/tmp/a.gpus.example:1", "unix:a.gpus.example:1",
        "ipv4:1.2.3.4/a.gpus.example:1", "dns:///evil/a.gpus.example:1", "a.gpus.example:1:1",
        "evil/a.gpus.example:1", "evil,a.gpus.example:1", "evil%2ea.gpus.example:1"}) {
    EXPECT_FALSE(Listed("*.gpus.example:*", address)) << address;
  }
}

TEST(PeersTest, RejectsEveryAddressWithoutAList) {
  const auto peers = *Peers::Make({}, {});
  EXPECT_FALSE(peers->any());
  const absl::Status status = peers->CheckListed("gpu-a:50051");
  EXPECT_EQ(status.code(), absl::StatusCode::kPermissionDenied);
  EXPECT_THAT(std::string(status.message()), HasSubstr("--peers"));
}

TEST(PeersTest, ChecksCallersOnlyIfTheServerAuthenticates) {
  const PeerOptions options{.principals = {"server-a", "dns:server-b"}};
  const auto open = *Peers::Make(options, {});
  EXPECT_TRUE(open->CheckCaller(*TestPrincipal("alice")).ok());
  const auto closed = *Peers::Make(options, {.token_file = "tokens"});
  EXPECT_TRUE(closed->CheckCaller(*TestPrincipal("server-a")).ok());
  EXPECT_EQ(closed->CheckCaller(*TestPrincipal("alice")).code(),
            absl::StatusCode::kPermissionDenied);
}

TEST(PeersTest, AdvertisesAReachableAddress) {
  EXPECT_EQ(PeerAddress("gpu-a:1", {"127.0.0.1:2"}, "box"), "gpu-a:1");
  EXPECT_EQ(PeerAddress("", {"unix:/tmp/x", "10.0.0.5:2", "10.0.0.6:3"}, "box"), "10.0.0.5:2");
  EXPECT_EQ(PeerAddress("", {"0.0.0.0:2"}, "box"), "box:2");
  EXPECT_EQ(PeerAddress("", {"[::]:2"}, "box"), "box:2");
  EXPECT_EQ(PeerAddress("", {"unix:/tmp/x"}, "box"), "");
}

}  // namespace
}  // namespace tensord::server
