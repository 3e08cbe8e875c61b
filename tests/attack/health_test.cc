// Attacks through health checks, by callers without credentials, on a server that requires
// credentials. The server must receive the request of such a call before it can refuse the call.
#include "tensord/tests/attack/http2_fixture.h"

namespace tensord::attack {
namespace {

constexpr char kWatch[] = "/grpc.health.v1.Health/Watch";
// Too few refused calls for the server to close the connection.
constexpr uint32_t kCallsPerConnection = 40;

class HealthTest : public TokenAttackFixture {
 protected:
  RawHttp2& Connect() {
    connections_.push_back(std::make_unique<RawHttp2>(daemon_->address()));
    return *connections_.back();
  }

  std::vector<std::unique_ptr<RawHttp2>> connections_;
};

// Each call announces a request of 15 MiB and sends a part of it.
TEST_F(HealthTest, LargeRequestsAreNotReceived) {
  const std::string part = GrpcMessage(std::string(15 << 20, 'x')).substr(0, 16000);
  for (int i = 0; i < 300; ++i) {
    RawHttp2& connection = Connect();
    if (!connection.SendPreface()) continue;
    for (uint32_t stream = 1; stream < 2 * 20; stream += 2) {
      if (!connection.BeginCall(stream, kHealthCheck)) break;
      if (!connection.SendFrame(kData, 0, stream, part)) break;
    }
  }
}

// After a refused call the server reads more bytes of the connection.
TEST_F(HealthTest, LargeRequestsAfterRefusedCallsAreNotReceived) {
  const std::string whole = GrpcMessage(std::string(15 << 20, 'x'));
  for (int i = 0; i < 100; ++i) {
    RawHttp2& connection = Connect();
    if (!connection.SendPreface() || !connection.BeginCall(1, kHealthCheck)) continue;
    for (uint32_t call = 1; call < kCallsPerConnection; ++call) {
      if (!connection.SendFrame(kData, 0, 1, whole.substr(call * 16000, 16000))) break;
      if (!connection.BeginCall(1 + 2 * call, "ListDevices")) break;
    }
  }
}

// Unauthenticated clients send checks as fast as the server reads them, and read no answers.
TEST_F(HealthTest, FloodsOfChecksHoldNoMemory) {
  const std::string check = GrpcMessage("");
  std::vector<std::thread> senders;
  for (int i = 0; i < 8; ++i) {
    RawHttp2& connection = Connect();
    ASSERT_TRUE(connection.SendPreface());
    connection.set_send_timeout(std::chrono::milliseconds(500));
    senders.emplace_back([&] {
      for (uint32_t stream = 1; stream < 40'000; stream += 2) {
        if (!connection.BeginCall(stream, kHealthCheck)) return;
        if (!connection.SendFrame(kData, kEndStream, stream, check)) return;
      }
    });
  }
  for (std::thread& sender : senders) sender.join();
  ExpectServed();
}

// The server waits for the requests of at most 256 refused calls. The test begins more calls, which
// send no request. Probes must still be answered.
TEST_F(HealthTest, AnswersProbesDespiteCallsWithoutRequests) {
  for (int i = 0; i < 20; ++i) {
    RawHttp2& connection = Connect();
    ASSERT_TRUE(connection.SendPreface());
    for (uint32_t call = 0; call < kCallsPerConnection; ++call) {
      if (!connection.BeginCall(1 + 2 * call, kHealthCheck)) break;
    }
    ExpectServed();
  }
}

// The peer never reads, never acknowledges the server's settings, and doesn't end its calls.
TEST_F(HealthTest, UnfinishedRefusedCallsHoldNoMemory) {
  for (int i = 0; i < 500; ++i) {
    RawHttp2& connection = Connect();
    if (!connection.SendPreface()) continue;
    for (uint32_t call = 0; call < kCallsPerConnection; ++call) {
      if (!connection.BeginCall(1 + 2 * call, call % 2 == 0 ? kWatch : "Read")) break;
    }
  }
}

// The server closes each connection after some of its calls, but gRPC has received the others.
TEST_F(HealthTest, RefusedCallsOfClosedConnectionsHoldNoMemory) {
  for (int i = 0; i < 200; ++i) {
    RawHttp2& connection = Connect();
    if (!connection.SendPreface()) continue;
    for (uint32_t call = 0; call < 700; ++call) {
      if (!connection.BeginCall(1 + 2 * call, call % 2 == 0 ? kWatch : "Read")) break;
    }
  }
}

// Together the connections send more bytes than the server reads from all unadmitted connections.
// Each of them sends fewer bytes than the headers of the legitimate calls have.
TEST_F(HealthTest, AnswersCallsWithLargeHeadersDespiteUnfinishedHeaders) {
  for (int i = 0; i < 1000; ++i) {
    RawHttp2& connection = Connect();
    if (!connection.SendPreface()) continue;
    connection.SendFrame(kHeaders, 0, 1,
                         std::string("\0\x06x-much\x7f\xc1\x3d", 11) + std::string(3200, 'x'));
  }
  for (int i = 0; i < 10; ++i) {
    EXPECT_TRUE(absl::IsUnauthenticated(Ask(std::string(6000, 'x'))));
  }
}

}  // namespace
}  // namespace tensord::attack
