// Many connections: TLS handshakes that don't end, and ten thousand connections at once.
#include <openssl/ssl.h>
#include <sys/resource.h>

#include <cstdlib>

#include "tensord/tests/attack/http2_fixture.h"

namespace tensord::attack {
namespace {

using integration::Eventually;
using integration::RpcClient;

// The server has at most this many connections that haven't made a valid call.
constexpr int kMaxUnadmitted = 1024;

bool Long() { return std::getenv("TENSORD_TEST_LONG") != nullptr; }

// Returns the first message of a TLS handshake.
std::string ClientHello() {
  const std::unique_ptr<SSL_CTX, decltype(&SSL_CTX_free)> context(SSL_CTX_new(TLS_client_method()),
                                                                  &SSL_CTX_free);
  const std::unique_ptr<SSL, decltype(&SSL_free)> client(SSL_new(context.get()), &SSL_free);
  BIO* const out = BIO_new(BIO_s_mem());
  SSL_set_bio(client.get(), BIO_new(BIO_s_mem()), out);
  SSL_connect(client.get());  // writes the message and waits for an answer
  std::string message(BIO_ctrl_pending(out), '\0');
  BIO_read(out, message.data(), static_cast<int>(message.size()));
  return message;
}

class HalfOpenTlsTest : public integration::IdentityFixture {
 protected:
  void SetUp() override {
    const auto pair = authority_.Issue(integration::ServerRequest());
    StartDaemon({"--tls-cert=" + folder_.Write("server.pem", pair.cert),
                 "--tls-key=" + folder_.Write("server.key", pair.key)});
    if (HasFatalFailure()) return;
    client_ = std::make_unique<RpcClient>(daemon_->address(), Credentials());
    ExpectServed();
    growth_.emplace(*daemon_, "VmHWM");
  }

  void TearDown() override {
    if (growth_.has_value()) growth_->ExpectBelow(kMaxHandshakeGrowthBytes);
    client_.reset();
    IdentityFixture::TearDown();
  }

  integration::RpcCredentials Credentials() const { return {.ca_pem = authority_.pem()}; }

  // Expects that an old and a new TLS client are served.
  void ExpectServed() {
    EXPECT_TRUE(ListDevices(*client_).ok());
    RpcClient another(daemon_->address(), Credentials());
    const auto devices = ListDevices(another);
    EXPECT_TRUE(devices.ok()) << devices.status();
  }

  // Opens more connections than the server keeps, each of which sends only `bytes`.
  void Attack(const std::string& bytes) {
    std::vector<std::unique_ptr<RawHttp2>> connections;
    for (int i = 0; i < kMaxUnadmitted + 200; ++i) {
      connections.push_back(std::make_unique<RawHttp2>(daemon_->address()));
      if (connections.back()->connected()) connections.back()->Send(bytes);
    }
    ExpectServed();
    ExpectServed();
  }

  // A handshake takes about 70 kB.
  static constexpr int64_t kMaxHandshakeGrowthBytes = 160 << 20;
  integration::Authority authority_;
  std::unique_ptr<RpcClient> client_;
  std::optional<MemoryGrowth> growth_;
};

TEST_F(HalfOpenTlsTest, ServesClientsBesideConnectionsThatSendNothing) { Attack(""); }

TEST_F(HalfOpenTlsTest, ServesClientsBesideIncompleteClientHellos) {
  const std::string hello = ClientHello();
  ASSERT_GT(hello.size(), 100u);
  Attack(hello.substr(0, hello.size() / 2));
}

// The server has answered, and waits for the end of the handshake.
TEST_F(HalfOpenTlsTest, ServesClientsBesideIncompleteHandshakes) { Attack(ClientHello()); }

class ManyConnectionsTest : public Http2Fixture {
 protected:
  // Returns `wanted`, or fewer if the limit on descriptors doesn't allow a daemon so many
  // connections. A daemon uses two descriptors for each.
  static int AsManyAsPossible(int wanted) {
    rlimit descriptors = {};
    getrlimit(RLIMIT_NOFILE, &descriptors);
    descriptors.rlim_cur = descriptors.rlim_max;
    setrlimit(RLIMIT_NOFILE, &descriptors);
    const auto possible = static_cast<int64_t>(descriptors.rlim_max / 2) - 500;
    return static_cast<int>(std::min<int64_t>(wanted, possible));
  }

  void SetUp() override {
    count_ = AsManyAsPossible(Long() ? 10000 : 2000);  // the daemon inherits the limit
    ASSERT_GT(count_, 0);
    Http2Fixture::SetUp();
    max_growth_bytes_ += count_ * int64_t{40} << 10;
  }

  int count_ = 0;
};

// The connections send the beginning of HTTP/2 and no call. The server closes the oldest ones.
TEST_F(ManyConnectionsTest, ServesClientsBesideConnectionsWithoutCalls) {
  std::vector<std::unique_ptr<RawHttp2>> connections;
  for (int i = 0; i < count_; ++i) {
    connections.push_back(std::make_unique<RawHttp2>(daemon_->address()));
    ASSERT_TRUE(connections.back()->connected()) << i;
    connections.back()->SendPreface();
    if (i % 1000 == 999) ExpectServed();
  }
  EXPECT_TRUE(connections.front()->AwaitClosed(std::chrono::seconds(30)));
}

// Each connection makes a valid call. All stay open and are served.
TEST_F(ManyConnectionsTest, ServesAllAdmittedConnections) {
  std::vector<std::unique_ptr<RawHttp2>> connections;
  for (int i = 0; i < count_; ++i) {
    connections.push_back(std::make_unique<RawHttp2>(daemon_->address()));
    ASSERT_TRUE(connections.back()->SendPreface()) << i;
    ASSERT_TRUE(connections.back()->Call(1, "ListDevices")) << i;
    if (i % 1000 == 999) ExpectServed();
  }
  for (int i = 0; i < count_; i += 97) {
    EXPECT_TRUE(connections[static_cast<size_t>(i)]->Call(3, "ListDevices")) << i;
  }
}

class ExpiredCallsTest : public integration::DaemonFixture {
 protected:
  ExpiredCallsTest() : DaemonFixture({"--grace-seconds=0.5"}) { expect_alive_ = false; }

  // Sends commands that make tensor `output`, a product that takes many minutes.
  void StartProduct(integration::StreamCall* stream, uint64_t output) {
    v1::SessionStreamRequest message = session_->Attach();
    v1::Op& ones = *message.add_commands()->mutable_op();
    ones.set_name("ones");
    ones.set_output(output + 1);
    ones.set_device("cpu:0");
    for (int i = 0; i < 2; ++i) (*ones.mutable_attrs())["shape"].mutable_ints()->add_values(16384);
    (*ones.mutable_attrs())["dtype"].set_dtype(v1::DTYPE_UINT8);
    v1::Op& product = *message.add_commands()->mutable_op();
    product.set_name("matmul");
    for (int i = 0; i < 2; ++i) product.add_inputs(output + 1);
    product.set_output(output);
    ASSERT_TRUE(stream->Send(message));
  }
};

// A server that is slow lets the deadlines of its clients' calls pass.
TEST_F(ExpiredCallsTest, TheConnectionOfExpiredCallsStaysOpen) {
  const auto stream = client_->SessionStream();
  ASSERT_NO_FATAL_FAILURE(StartProduct(stream.get(), 1));
  client_->set_deadline_seconds(0.01);
  std::vector<std::thread> callers;
  for (int i = 0; i < 16; ++i) {
    callers.emplace_back([this] {
      for (int n = 0; n < 50; ++n) {
        const auto read = session_->ReadFloats(1);
        EXPECT_EQ(read.status().code(), absl::StatusCode::kDeadlineExceeded) << read.status();
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  client_->set_deadline_seconds(60);
  v1::SessionStreamRequest message;
  message.add_commands()->mutable_barrier()->set_barrier_id(1);
  ASSERT_TRUE(stream->Send(message));
  EXPECT_TRUE(stream->Next().has_value());
  EXPECT_TRUE(ListDevices(*client_).ok());
}

}  // namespace
}  // namespace tensord::attack
