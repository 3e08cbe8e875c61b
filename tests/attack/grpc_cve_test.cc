// The published vulnerabilities of gRPC that no other test covers (README.md, "gRPC 1.51").
#include "tensord/tests/attack/http2_fixture.h"

namespace tensord::attack {
namespace {

using CallEnd = RawHttp2::CallEnd;
using std::chrono::seconds;

class GrpcCveTest : public Http2Fixture {};
class GrpcCveTokenTest : public TokenAttackFixture {
 protected:
  static std::string Authorization(const std::string& token) {
    return IndexedHeader("authorization", "Bearer " + token);
  }

  // Ends a call that has sent its headers. Returns how it ended.
  static CallEnd EndCall(RawHttp2& connection, uint32_t stream) {
    connection.SendFrame(kData, kEndStream, stream, GrpcMessage(""));
    return connection.AwaitEnd(stream);
  }
};

// An invalid header and more than 8 KiB of headers made gRPC abort the program.
TEST_F(GrpcCveTest, Cve20231428InvalidHeadersBeyondTheLimit) {
  const Headers invalid = {{"te", "x"},           {":scheme", "x"},
                           {":method", "x"},      {"grpclb_client_stats", "x"},
                           {"content-type", "x"}, {"grpc-timeout", "x"}};
  const std::pair<std::string, std::string> large = {"x-large", std::string(9000, 'x')};
  for (const auto& header : invalid) {
    for (const bool large_first : {false, true}) {
      for (const bool acknowledges : {false, true}) {
        for (const size_t frame_bytes : {100, 16384}) {
          RawHttp2 connection(daemon_->address());
          ASSERT_TRUE(connection.SendPreface());
          ASSERT_TRUE(!acknowledges || connection.SendFrame(kSettings, kAck, 0, ""));
          Headers headers = CallHeaders("ListDevices");
          std::erase_if(headers, [&](const auto& each) { return each.first == header.first; });
          // gRPC requires that pseudo-headers come first.
          headers.insert(header.first[0] == ':' ? headers.begin() : headers.end(), header);
          headers.insert(large_first ? headers.begin() : headers.end(), large);
          if (connection.SendHeaders(1, HeaderBlock(headers), frame_bytes) &&
              connection.SendFrame(kData, kEndStream, 1, GrpcMessage(""))) {
            connection.AwaitEnd(1);
          }
          ASSERT_TRUE(daemon_->running()) << header.first << '\n' << daemon_->Output();
        }
      }
    }
  }
}

// A connection that was reset before gRPC's listener had accepted it ended the listener.
TEST_F(GrpcCveTest, Cve20234785AbortedConnections) {
  for (int i = 0; i < 3000; ++i) {
    RawHttp2 connection(daemon_->address());
    ASSERT_TRUE(connection.connected());
    if (i % 3 == 1) connection.SendPreface();
    if (i % 3 == 2 && connection.SendPreface()) connection.BeginCall(1, "ListDevices");
    connection.Abort();
    if (i % 500 == 0) ExpectServed();
  }
}

// After headers beyond the limit, gRPC skipped the rest of the block, so its table differed from
// the client's. If a proxy's connection carried calls of several callers, gRPC could take the
// headers of one caller for those of another. Here the first call adds an unknown token to the
// table. The second call has headers beyond the limit, and then adds alice's token. The third call
// refers to the newest entry. If gRPC has skipped the rest of the second call's block, the third
// call has the unknown token.
TEST_F(GrpcCveTokenTest, Cve202332731TableAfterHeadersBeyondTheLimit) {
  for (const bool acknowledges : {false, true}) {
    RawHttp2 connection(daemon_->address());
    ASSERT_TRUE(connection.SendPreface());
    ASSERT_TRUE(!acknowledges || connection.SendFrame(kSettings, kAck, 0, ""));
    const std::string headers = HeaderBlock(CallHeaders("ListDevices"));
    ASSERT_TRUE(connection.SendHeaders(1, headers + Authorization("unknown-token")));
    EXPECT_EQ(EndCall(connection, 1), CallEnd::kError);
    const std::string large = HeaderBlock({{"x-large", std::string(12000, 'x')}});
    connection.SendHeaders(3, headers + large + Authorization(kAlice));
    EXPECT_NE(EndCall(connection, 3), CallEnd::kResponse);
    if (!connection.SendHeaders(5, headers + kNewestEntry)) continue;
    EXPECT_NE(EndCall(connection, 5), CallEnd::kError)
        << "the server serves the call or closes the connection";
    // The older entry is still the other token.
    if (!connection.SendHeaders(7, headers + kSecondNewestEntry)) continue;
    EXPECT_NE(EndCall(connection, 7), CallEnd::kResponse);
  }
}

// If the value of a "-bin" header isn't base64, gRPC 1.51 ends the connection. Other connections
// must not be affected.
TEST_F(GrpcCveTest, Cve202332732InvalidBase64EndsOnlyItsConnection) {
  RawHttp2 other(daemon_->address());
  ASSERT_TRUE(other.SendPreface());
  uint32_t stream = 1;
  for (const std::string value : {"!!!!", "a", "AAAA=AAAA", "\xff\xfe"}) {
    for (const bool indexed : {false, true}) {
      RawHttp2 connection(daemon_->address());
      ASSERT_TRUE(connection.SendPreface());
      ASSERT_TRUE(connection.Call(1, "ListDevices"));
      const std::string header =
          indexed ? IndexedHeader("x-a-bin", value) : HeaderBlock({{"x-a-bin", value}});
      connection.SendHeaders(3, HeaderBlock(CallHeaders("ListDevices")) + header);
      EXPECT_NE(connection.AwaitEnd(3), CallEnd::kResponse);
      ASSERT_TRUE(other.Call(stream, "ListDevices"));
      stream += 2;
    }
  }
}

// If an invalid header entered the table, gRPC applied its error also to later headers and calls,
// even to those of other callers behind the same proxy. Here the second call has such a header, and
// then a valid token. The server must serve later calls with and without that token's entry, or
// close the connection.
TEST_F(GrpcCveTokenTest, Cve20247246ErrorsOfTableEntries) {
  const Headers invalid = {{"te", "x"},
                           {":scheme", "x"},
                           {":method", "x"},
                           {"content-type", "x"},
                           {"x-a-bin", "!!"},
                           {"grpc-timeout", "x"},
                           {"grpc-encoding", "x"},
                           {"grpc-previous-rpc-attempts", "x"},
                           {"Upper", "x"},
                           {"x y", "x"},
                           {"x-zero", std::string("a\0b", 3)}};
  for (const auto& [name, value] : invalid) {
    RawHttp2 connection(daemon_->address());
    ASSERT_TRUE(connection.SendPreface());
    ASSERT_TRUE(connection.Call(1, "ListDevices", {{"authorization", "Bearer alice-token"}}));
    const std::string headers = HeaderBlock(CallHeaders("ListDevices"));
    connection.SendHeaders(3, headers + IndexedHeader(name, value) + Authorization(kAlice));
    EndCall(connection, 3);
    if (!connection.SendHeaders(5, headers + kNewestEntry)) continue;
    EXPECT_NE(EndCall(connection, 5), CallEnd::kError) << name;
    if (!connection.BeginCall(7, "ListDevices", {{"authorization", "Bearer alice-token"}}))
      continue;
    EXPECT_NE(EndCall(connection, 7), CallEnd::kError) << name;
  }
}

}  // namespace
}  // namespace tensord::attack
