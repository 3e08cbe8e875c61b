// Attacks on HTTP/2. Each attack must take a bounded amount of the daemon's
// memory, and must not block legitimate clients.
#include <sys/resource.h>
#include <zlib.h>

#include <filesystem>
#include <iterator>
#include <thread>

#include "absl/strings/str_cat.h"
#include "tensord/tests/attack/http2_fixture.h"

namespace tensord::attack {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

class Http2Test : public Http2Fixture {
 protected:
  using Http2Fixture::Http2Fixture;
};

// The message has a quarter of a megabyte. Inflated, it would have a quarter of a gigabyte.
TEST_F(Http2Test, CompressedMessagesAreNotInflated) {
  std::string packed(1200000, '\0');
  z_stream z = {};
  ASSERT_EQ(deflateInit2(&z, 9, Z_DEFLATED, 15 + 16, 9, Z_DEFAULT_STRATEGY), Z_OK);
  std::string zeros(1 << 20, '\0');
  z.next_out = reinterpret_cast<Bytef*>(packed.data());
  z.avail_out = static_cast<uInt>(packed.size());
  for (int i = 0; i < 256; ++i) {
    z.next_in = reinterpret_cast<Bytef*>(zeros.data());
    z.avail_in = static_cast<uInt>(zeros.size());
    ASSERT_EQ(deflate(&z, i == 255 ? Z_FINISH : Z_NO_FLUSH), i == 255 ? Z_STREAM_END : Z_OK);
  }
  packed.resize(z.total_out);
  deflateEnd(&z);
  for (const char* method : {"CreateTensor", "RunOp", "SessionStream", "Write"}) {
    RawHttp2 connection(daemon_->address());
    ASSERT_TRUE(connection.SendPreface());
    ASSERT_TRUE(connection.BeginCall(1, method, {{"grpc-encoding", "gzip"}}));
    const std::string message = GrpcMessage(packed, /*compressed=*/true);
    for (size_t at = 0; at < message.size(); at += 16384) {
      if (!connection.SendFrame(kData, 0, 1, message.substr(at, 16384))) break;
    }
    connection.AwaitClosed(milliseconds(300));
  }
}

TEST_F(Http2Test, HugeHeadersAreRefused) {
  for (int i = 0; i < 2; ++i) {
    RawHttp2 connection(daemon_->address());
    ASSERT_TRUE(connection.SendPreface());
    connection.BeginCall(1, "GetServerInfo", {{"x-much", std::string(8 << 20, 'x')}});
    connection.AwaitClosed(milliseconds(300));
  }
}

// Sends a header block that never ends. Returns when the server has stopped reading.
void SendEndlessHeaders(RawHttp2& connection, uint32_t stream = 1) {
  const std::string value(8000, 'x');
  ASSERT_TRUE(connection.SendFrame(kHeaders, 0, stream, ""));
  for (int i = 0; i < 64 * 1024; ++i) {  // half a gigabyte
    std::string frame(1, '\0');
    frame += "\x06x-much";
    frame += "\x7f\xc1\x3d";  // the length of the value: 8000
    frame += value;
    if (!connection.SendFrame(kContinuation, 0, stream, frame)) return;
  }
  ADD_FAILURE() << "the server reads header blocks without a limit";
}

TEST_F(Http2Test, EndlessHeadersAreNotReceived) {
  RawHttp2 connection(daemon_->address());
  ASSERT_TRUE(connection.SendPreface());
  SendEndlessHeaders(connection);
}

// The server serves calls of the connection before and, until the attack begins, beside the attack.
// The client never acknowledges the server's settings, so gRPC applies no limit to headers.
TEST_F(Http2Test, EndlessHeadersAfterServedCallsAreNotReceived) {
  RawHttp2 connection(daemon_->address());
  ASSERT_TRUE(connection.SendPreface());
  ASSERT_TRUE(connection.Call(3, "ListDevices"));
  ASSERT_TRUE(connection.Call(5, "ListDevices"));
  SendEndlessHeaders(connection, 7);
}

// The connections send more than the pool of unadmitted connections holds. The server closes the
// oldest.
TEST_F(Http2Test, UnfinishedHeadersOfManyConnectionsAreBounded) {
  constexpr int kConnections = 500;
  std::vector<std::unique_ptr<RawHttp2>> connections;
  for (int i = 0; i < kConnections; ++i) {
    connections.push_back(std::make_unique<RawHttp2>(daemon_->address()));
    RawHttp2& connection = *connections.back();
    if (!connection.SendPreface() || !connection.SendFrame(kHeaders, 0, 1, "")) continue;
    // Many small headers take the most memory for the bytes sent.
    std::string frame;
    while (frame.size() < 16000) frame += std::string("\0\x01x\x01y", 5);
    connection.SendFrame(kContinuation, 0, 1, frame);
    connection.SendFrame(kContinuation, 0, 1, frame);
  }
  EXPECT_TRUE(connections.front()->AwaitClosed(seconds(30)));
}

class TwoAddressesTest : public Http2Test {
 protected:
  TwoAddressesTest() : Http2Test({"--listen=127.0.0.1:0"}) {}

  std::string SecondAddress() const {
    const std::string output = daemon_->Output();
    const size_t begin = output.find(", ", output.find("listening on")) + 2;
    return output.substr(begin, output.find('\n', begin) - begin);
  }
};

TEST_F(TwoAddressesTest, BoundsEachOfTwoConnectionsFromOnePort) {
  std::unique_ptr<RawHttp2> first, second;
  // If another process uses the port, tries the next one.
  for (int i = 0; i < 20 && (second == nullptr || !second->connected()); ++i) {
    first = std::make_unique<RawHttp2>(daemon_->address());
    second = std::make_unique<RawHttp2>(SecondAddress(), first->local_port());
  }
  ASSERT_TRUE(first->SendPreface());
  ASSERT_EQ(second->local_port(), first->local_port());
  ASSERT_TRUE(second->SendPreface());
  SendEndlessHeaders(*first);
  SendEndlessHeaders(*second);
}

TEST_F(Http2Test, PingFloodsEndTheConnection) {
  RawHttp2 connection(daemon_->address());
  ASSERT_TRUE(connection.SendPreface());
  bool open = true;
  for (int i = 0; open && i < 100000; ++i) open = connection.SendFrame(kPing, 0, 0, "12345678");
  EXPECT_TRUE(!open || connection.AwaitClosed(seconds(30)));
}

TEST_F(Http2Test, SettingsFloodsAreSurvived) {
  RawHttp2 connection(daemon_->address());
  ASSERT_TRUE(connection.SendPreface());
  for (int i = 0; i < 100000; ++i) {
    if (!connection.SendFrame(kSettings, 0, 0, "")) break;
  }
}

// CVE-2023-44487: the client resets each call at once.
TEST_F(Http2Test, RapidResetsCloseTheirConnection) {
  std::vector<std::thread> attackers;
  for (const char* method : {"ListDevices", "CreateTensor", "Write", "SessionStream"}) {
    attackers.emplace_back([this, method] {
      RawHttp2 connection(daemon_->address());
      bool open = connection.SendPreface();
      EXPECT_TRUE(open);
      for (uint32_t stream = 1; open && stream < 40000; stream += 2) {
        open = connection.BeginCall(stream, method) &&
               connection.SendFrame(kRstStream, 0, stream, std::string("\0\0\0\x8", 4));
      }
      // The buffers of the connection may hold all of these frames.
      EXPECT_TRUE(!open || connection.AwaitClosed(std::chrono::seconds(30))) << method;
    });
  }
  for (std::thread& attacker : attackers) attacker.join();
}

// The client begins calls and sends no request.
TEST_F(Http2Test, UnfinishedCallsAreSurvived) {
  std::vector<std::unique_ptr<RawHttp2>> connections;
  for (int i = 0; i < 20; ++i) {
    auto& connection = connections.emplace_back(std::make_unique<RawHttp2>(daemon_->address()));
    ASSERT_TRUE(connection->SendPreface());
    for (uint32_t stream = 1; stream < 400; stream += 2) {
      if (!connection->BeginCall(stream, stream % 4 == 1 ? "Write" : "SessionStream")) break;
    }
  }
  const auto values = session_->ReadFloats(1);
  EXPECT_TRUE(values.ok()) << values.status();
}

// The client sends complete requests and lets the server send no response, so the calls stay open.
// It doesn't acknowledge the server's settings, so gRPC applies no limit to the number of calls.
// The server refuses calls above its own limit, and closes the connection after some refusals.
// Without a limit, the calls would take about 500 MiB.
TEST_F(Http2Test, OpenCallsOfOneConnectionAreBounded) {
  max_growth_bytes_ = 192 << 20;
  RawHttp2 connection(daemon_->address());
  ASSERT_TRUE(connection.SendPreface());
  ASSERT_TRUE(connection.SendFrame(kSettings, 0, 0, kNoResponses));
  bool open = true;
  for (uint32_t stream = 1; open && stream < 2 * 40000; stream += 2) {
    open = connection.BeginCall(stream, "ListDevices") &&
           connection.SendFrame(kData, kEndStream, stream, GrpcMessage(""));
  }
  ExpectServed();
  EXPECT_TRUE(!open || connection.AwaitClosed(seconds(30)));
}

class UnfinishedRequestsTest : public Http2Test {
 protected:
  UnfinishedRequestsTest() : Http2Test({"--max-request-bytes-per-principal=32MiB"}) {}
};

// A quarter of a gigabyte of requests is under way, and none is complete. The legitimate client is
// the same principal.
TEST_F(UnfinishedRequestsTest, AreBoundedForEachPrincipal) {
  constexpr int kConnections = 4;
  constexpr uint32_t kCalls = 64;
  const std::string prefix = GrpcMessage(std::string(15 << 20, 'x')).substr(0, 5);
  const std::string data(16000, 'x');
  std::vector<std::thread> attackers;
  std::vector<std::unique_ptr<RawHttp2>> connections;
  for (int i = 0; i < kConnections; ++i) {
    connections.push_back(std::make_unique<RawHttp2>(daemon_->address()));
    attackers.emplace_back([&connection = *connections.back(), &prefix, &data] {
      bool open = connection.SendPreface() && connection.Call(1, "ListDevices");
      for (uint32_t call = 0; open && call < kCalls; ++call) {
        open = connection.BeginCall(3 + 2 * call, "CreateTensor") &&
               connection.SendFrame(kData, 0, 3 + 2 * call, prefix);
      }
      for (int piece = 0; open && piece < 64; ++piece) {
        for (uint32_t call = 0; open && call < kCalls; ++call) {
          open = connection.SendFrame(kData, 0, 3 + 2 * call, data);
        }
      }
    });
  }
  for (int i = 0; i < 20; ++i) {
    const auto values = session_->ReadFloats(1);
    EXPECT_TRUE(values.ok()) << values.status();
  }
  for (std::thread& attacker : attackers) attacker.join();
}

class UnreadResponsesTest : public Http2Test {
 protected:
  UnreadResponsesTest() : Http2Test({"--max-response-bytes-per-principal=32MiB"}) {}
};

// The client accepts no byte of a response. The responses would take three gigabytes. The
// legitimate client is the same principal.
TEST_F(UnreadResponsesTest, AreBoundedForEachPrincipal) {
  constexpr int64_t kElements = 15 << 18;  // 15 MiB
  ASSERT_TRUE(session_->Ones(2, {kElements}).ok());
  growth_.emplace(*daemon_, "VmHWM");
  const int64_t before = daemon_->MemoryBytes("VmHWM");
  RawHttp2 connection(daemon_->address());
  ASSERT_TRUE(connection.SendPreface());
  ASSERT_TRUE(connection.SendFrame(kSettings, 0, 0, kNoResponses));
  v1::ReadTensorRequest request;
  request.set_session(session_->id());
  request.set_handle(2);
  for (uint32_t call = 0; call < 200; ++call) {
    const uint32_t stream = 1 + 2 * call;
    ASSERT_TRUE(connection.BeginCall(stream, "ReadTensor"));
    ASSERT_TRUE(
        connection.SendFrame(kData, kEndStream, stream, GrpcMessage(request.SerializeAsString())));
  }
  // The first responses have been built.
  EXPECT_TRUE(integration::Eventually(
      [&] { return daemon_->MemoryBytes("VmHWM") - before > 4 * kElements; }));
  for (int i = 0; i < 100; ++i) ASSERT_TRUE(session_->Get(1).ok());
}

TEST_F(Http2Test, GarbageEndsItsConnection) {
  const std::vector<std::string> garbage = {
      "GET / HTTP/1.1\r\nHost: x\r\n\r\n", std::string(100000, '\0'), std::string(100000, '\xff'),
      std::string({0x16, 3, 1, 2, 0, 1, 0, 1, '\xfc', 3, 3}),  // TLS
      "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + std::string(50000, '\x7f')};
  for (const std::string& bytes : garbage) {
    RawHttp2 connection(daemon_->address());
    ASSERT_TRUE(connection.connected());
    connection.Send(bytes);
    EXPECT_TRUE(connection.AwaitClosed(seconds(30))) << bytes.substr(0, 20);
  }
}

class FewDescriptorsTest : public Http2Test {
 protected:
  void SetUp() override {
    Http2Test::SetUp();
    if (HasFatalFailure()) return;
    before_ = OpenDescriptors();
    const rlimit few = {100, 100};
    ASSERT_EQ(prlimit(daemon_->pid(), RLIMIT_NOFILE, &few, nullptr), 0);
  }

  // Waits until the server has closed the attacker's connections. Until then, it may close a new
  // connection before this has sent anything.
  void TearDown() override {
    if (before_ > 0) {
      EXPECT_TRUE(integration::Eventually([this] { return OpenDescriptors() <= before_ + 8; }));
    }
    Http2Test::TearDown();
  }

 private:
  int64_t OpenDescriptors() const {
    const std::filesystem::directory_iterator all(absl::StrCat("/proc/", daemon_->pid(), "/fd"));
    return std::distance(begin(all), end(all));
  }

  int64_t before_ = 0;
};

// The attacker opens more connections than the server has descriptors. Existing connections are
// still served. After the attacker's connections are closed, the server accepts new ones.
TEST_F(FewDescriptorsTest, ServesExistingClientsBeyondTheDescriptorLimit) {
  {
    std::vector<std::unique_ptr<RawHttp2>> connections;
    for (int i = 0; i < 400; ++i) {
      auto& connection = connections.emplace_back(std::make_unique<RawHttp2>(daemon_->address()));
      if (connection->connected()) connection->SendPreface();
    }
    const auto values = session_->ReadFloats(1);
    EXPECT_TRUE(values.ok()) << values.status();
  }
  // The server takes some time to notice that the connections are closed.
  EXPECT_TRUE(integration::Eventually([this] {
    integration::RpcClient another(daemon_->address());
    another.set_deadline_seconds(5);
    return another.Health("").ok();
  }));
}

// If a new connection needs a descriptor, the server closes a connection that sends nothing.
TEST_F(FewDescriptorsTest, ClosesIdleConnectionsForNewOnes) {
  std::vector<std::unique_ptr<RawHttp2>> silent;
  for (int i = 0; i < 400; ++i) {
    silent.push_back(std::make_unique<RawHttp2>(daemon_->address()));
  }
  EXPECT_TRUE(integration::Eventually([this] {
    integration::RpcClient another(daemon_->address());
    another.set_deadline_seconds(2);
    return another.Health("").ok();
  }));
}

}  // namespace
}  // namespace tensord::attack
