#include "tensord/tests/proxy/delay_proxy.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <thread>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace tensord::proxy {
namespace {

using std::chrono::milliseconds;

constexpr int kTimeoutMs = 30000;

// A blocking socket with a timeout of kTimeoutMs.
class Socket {
 public:
  Socket() = default;
  explicit Socket(int fd) : fd_(fd) {
    const timeval timeout = {.tv_sec = kTimeoutMs / 1000, .tv_usec = 0};
    setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof(timeout));
    setsockopt(fd_, SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof(timeout));
  }
  Socket(Socket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Socket& operator=(Socket&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Socket() {
    if (fd_ >= 0) close(fd_);
  }

  static Socket ConnectTo(const std::string& address) {
    const size_t colon = address.rfind(':');
    sockaddr_in to = {};
    to.sin_family = AF_INET;
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    to.sin_port = htons(static_cast<uint16_t>(std::atoi(address.c_str() + colon + 1)));
    Socket socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    EXPECT_EQ(connect(socket.fd_, reinterpret_cast<sockaddr*>(&to), sizeof(to)), 0);
    return socket;
  }

  int fd() const { return fd_; }
  void Send(const std::string& bytes) const {
    ASSERT_EQ(send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL), ssize_t(bytes.size()));
  }
  // Receives exactly `size` bytes; fewer if the connection ends.
  std::string Receive(size_t size) const {
    std::string bytes(size, '\0');
    size_t got = 0;
    while (got < size) {
      const ssize_t n = recv(fd_, bytes.data() + got, size - got, 0);
      if (n <= 0) break;
      got += n;
    }
    bytes.resize(got);
    return bytes;
  }
  void EndSending() const { shutdown(fd_, SHUT_WR); }
  // Waits for the end of the connection. Returns 0 for an orderly end, otherwise the error of recv.
  int End() const {
    char byte;
    const ssize_t n = recv(fd_, &byte, 1, 0);
    return n < 0 ? errno : static_cast<int>(n);
  }

 private:
  int fd_ = -1;
};

class DelayProxyTest : public testing::Test {
 protected:
  DelayProxyTest() {
    listener_ = Socket(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in at = {};
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(at);
    EXPECT_EQ(bind(listener_.fd(), reinterpret_cast<sockaddr*>(&at), size), 0);
    EXPECT_EQ(listen(listener_.fd(), 16), 0);
    getsockname(listener_.fd(), reinterpret_cast<sockaddr*>(&at), &size);
    options_.target = absl::StrCat("127.0.0.1:", ntohs(at.sin_port));
  }

  // Connects client_ and server_ through the proxy.
  void Connect() {
    if (proxy_ == nullptr) {
      auto proxy = DelayProxy::Start(options_);
      ASSERT_TRUE(proxy.ok()) << proxy.status();
      proxy_ = *std::move(proxy);
    }
    client_ = Socket::ConnectTo(proxy_->address());
    pollfd ready = {.fd = listener_.fd(), .events = POLLIN, .revents = 0};
    ASSERT_EQ(poll(&ready, 1, kTimeoutMs), 1);
    server_ = Socket(accept(listener_.fd(), nullptr, nullptr));
  }

  Socket listener_;
  DelayProxyOptions options_;
  std::unique_ptr<DelayProxy> proxy_;
  Socket client_;
  Socket server_;
};

TEST_F(DelayProxyTest, PassesBytesBothWaysAndCountsThem) {
  ASSERT_NO_FATAL_FAILURE(Connect());
  client_.Send("question");
  EXPECT_EQ(server_.Receive(8), "question");
  server_.Send("the answer");
  EXPECT_EQ(client_.Receive(10), "the answer");
  EXPECT_TRUE(proxy_->Await([](const ProxyStats& stats) {
    return stats.bytes_to_server == 8 && stats.bytes_to_client == 10;
  }));
}

TEST_F(DelayProxyTest, CountsRoundTripsAndNotMessages) {
  ASSERT_NO_FATAL_FAILURE(Connect());
  for (int question = 1; question <= 3; ++question) {
    for (int i = 0; i < 5; ++i) client_.Send("?");
    EXPECT_EQ(server_.Receive(5), "?????");
    for (int i = 0; i < 4; ++i) {
      server_.Send("!");
      EXPECT_EQ(client_.Receive(1), "!");
    }
    EXPECT_TRUE(
        proxy_->Await([&](const ProxyStats& stats) { return stats.round_trips == question; }));
  }
  server_.Send("unasked");
  EXPECT_EQ(client_.Receive(7), "unasked");
  EXPECT_EQ(proxy_->stats().round_trips, 3);
}

TEST_F(DelayProxyTest, AMessageTakesAtLeastTheDelay) {
  options_.one_way_delay = milliseconds(40);
  ASSERT_NO_FATAL_FAILURE(Connect());
  const auto start = std::chrono::steady_clock::now();
  client_.Send("there");
  EXPECT_EQ(server_.Receive(5), "there");
  server_.Send("and back");
  EXPECT_EQ(client_.Receive(8), "and back");
  EXPECT_GE(std::chrono::steady_clock::now() - start, milliseconds(80));
}

TEST_F(DelayProxyTest, DelaysEveryByteAndKeepsThemInOrder) {
  options_.one_way_delay = milliseconds(20);
  ASSERT_NO_FATAL_FAILURE(Connect());
  std::string all;
  for (int i = 0; i < 200; ++i) all += absl::StrCat("message ", i, ";");
  std::thread sender([&] {
    for (size_t at = 0; at < all.size(); at += 9) client_.Send(all.substr(at, 9));
  });
  EXPECT_EQ(server_.Receive(all.size() / 2), all.substr(0, all.size() / 2));
  // A shorter delay must not reorder bytes.
  proxy_->SetDelay(milliseconds(0));
  EXPECT_EQ(server_.Receive(all.size() - all.size() / 2), all.substr(all.size() / 2));
  sender.join();
}

TEST_F(DelayProxyTest, TheEndOfOneDirectionLeavesTheOtherOpen) {
  ASSERT_NO_FATAL_FAILURE(Connect());
  client_.Send("last words");
  client_.EndSending();
  EXPECT_EQ(server_.Receive(100), "last words") << "bytes arrive before the end";
  server_.Send("still here");
  EXPECT_EQ(client_.Receive(10), "still here");
  server_ = Socket();
  EXPECT_EQ(client_.End(), 0);
  EXPECT_TRUE(proxy_->Await([](const ProxyStats& stats) { return stats.connections == 0; }));
}

TEST_F(DelayProxyTest, ThrottledBytesTakeTheirTime) {
  options_.bytes_per_second = 1000000;
  ASSERT_NO_FATAL_FAILURE(Connect());
  const std::string bytes(200000, 'b');
  const auto start = std::chrono::steady_clock::now();
  std::thread sender([&] { client_.Send(bytes); });
  EXPECT_EQ(server_.Receive(bytes.size()), bytes);
  sender.join();
  EXPECT_GE(std::chrono::steady_clock::now() - start, milliseconds(200));
  proxy_->SetBandwidth(0);
  server_.Send(bytes);
  EXPECT_EQ(client_.Receive(bytes.size()), bytes);
}

TEST_F(DelayProxyTest, FullBufferBlocksTheSender) {
  options_.max_buffered_bytes = 256 * 1024;
  ASSERT_NO_FATAL_FAILURE(Connect());
  proxy_->SetHeld(Direction::kToServer, true);
  const std::string bytes(64 << 20, 'b');  // far more than sockets hold
  std::thread sender([&] { client_.Send(bytes); });
  const auto full = [&](const ProxyStats& stats) {
    return stats.pending_to_server_bytes >= options_.max_buffered_bytes;
  };
  EXPECT_TRUE(proxy_->Await(full));
  EXPECT_LE(proxy_->stats().pending_to_server_bytes, options_.max_buffered_bytes + 64 * 1024);
  proxy_->SetHeld(Direction::kToServer, false);
  EXPECT_TRUE(server_.Receive(bytes.size()) == bytes);
  sender.join();
}

TEST_F(DelayProxyTest, HeldBytesArriveAfterRelease) {
  ASSERT_NO_FATAL_FAILURE(Connect());
  proxy_->SetHeld(Direction::kToClient, true);
  client_.Send("ask");
  EXPECT_EQ(server_.Receive(3), "ask") << "the other direction isn't held";
  server_.Send("answer");
  EXPECT_TRUE(
      proxy_->Await([](const ProxyStats& stats) { return stats.pending_to_client_bytes == 6; }));
  EXPECT_EQ(proxy_->stats().bytes_to_client, 0);
  proxy_->SetHeld(Direction::kToClient, false);
  EXPECT_EQ(client_.Receive(6), "answer");
}

TEST_F(DelayProxyTest, SwallowsOneDirection) {
  ASSERT_NO_FATAL_FAILURE(Connect());
  proxy_->SetDiscarding(Direction::kToServer, true);
  client_.Send("into the void");
  EXPECT_TRUE(proxy_->Await([](const ProxyStats& stats) { return stats.bytes_to_server == 13; }));
  server_.Send("hello?");
  EXPECT_EQ(client_.Receive(6), "hello?");
  proxy_->SetDiscarding(Direction::kToServer, false);
  client_.Send("again");
  EXPECT_EQ(server_.Receive(5), "again") << "earlier bytes were discarded";
}

TEST_F(DelayProxyTest, CutConnectionsAreReset) {
  ASSERT_NO_FATAL_FAILURE(Connect());
  client_.Send("x");
  EXPECT_EQ(server_.Receive(1), "x");
  proxy_->CutAll();
  EXPECT_EQ(proxy_->stats().connections, 0);
  EXPECT_EQ(client_.End(), ECONNRESET);
  EXPECT_EQ(server_.End(), ECONNRESET);
  ASSERT_NO_FATAL_FAILURE(Connect());
  client_.Send("y");
  EXPECT_EQ(server_.Receive(1), "y") << "the next connection works";
}

TEST_F(DelayProxyTest, AcceptsAgainAfterSetAccepting) {
  ASSERT_NO_FATAL_FAILURE(Connect());
  proxy_->SetAccepting(false);
  const Socket waiting = Socket::ConnectTo(proxy_->address());
  client_.Send("z");
  EXPECT_EQ(server_.Receive(1), "z") << "existing connections still work";
  EXPECT_EQ(proxy_->stats().accepted, 1);
  proxy_->SetAccepting(true);
  EXPECT_TRUE(proxy_->Await([](const ProxyStats& stats) { return stats.accepted == 2; }));
}

TEST_F(DelayProxyTest, RefusedConnectionIsResetForTheClient) {
  ASSERT_NO_FATAL_FAILURE(Connect());
  listener_ = Socket();
  const Socket refused = Socket::ConnectTo(proxy_->address());
  EXPECT_EQ(refused.End(), ECONNRESET);
}

TEST_F(DelayProxyTest, RejectsInvalidAddress) {
  options_.target = "localhost:1";
  EXPECT_EQ(DelayProxy::Start(options_).status().code(), absl::StatusCode::kInvalidArgument);
}

// Returns the first bytes of a gRPC client: the preface, and the headers of a call in stream 1.
std::string CallOf(const std::string& method) {
  std::string headers("\0\0\0\1\4\0\0\0\1", 9);
  headers[2] = static_cast<char>(method.size() + 1);
  return absl::StrCat("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", headers,
                      std::string(1, static_cast<char>(method.size())), method);
}

TEST_F(DelayProxyTest, CallFaultCutsCallAtItsPosition) {
  const std::string call = CallOf("/a.Service/Do");
  ASSERT_NO_FATAL_FAILURE(Connect());
  proxy_->SetCallFault({.position = {.method = "/a.Service/Do", .bytes = 20}});
  client_.Send(call);
  const std::string arrived = call.substr(0, call.size() - 3);  // 9 of the frame's head, 11 more
  EXPECT_EQ(server_.Receive(arrived.size()), arrived);
  EXPECT_EQ(server_.End(), ECONNRESET);
  EXPECT_EQ(client_.End(), ECONNRESET);
  EXPECT_TRUE(proxy_->Await([](const ProxyStats& stats) { return stats.connections == 0; }));
  EXPECT_EQ(proxy_->stats().faults_injected, 1);
  ASSERT_NO_FATAL_FAILURE(Connect());
  client_.Send(call);
  EXPECT_EQ(server_.Receive(call.size()), call) << "a fault acts once";
}

TEST_F(DelayProxyTest, CallFaultLeavesAllConnectionsHalfOpen) {
  const std::string call = CallOf("/a.Service/Do");
  ASSERT_NO_FATAL_FAILURE(Connect());
  const Socket other_client = std::move(client_);
  const Socket other_server = std::move(server_);
  ASSERT_NO_FATAL_FAILURE(Connect());
  proxy_->SetCallFault({.position = {.method = "/a.Service/Do"}, .cut = false, .all = true});
  client_.Send(call);
  EXPECT_TRUE(proxy_->Await([](const ProxyStats& stats) { return stats.faults_injected == 1; }));
  const int64_t passed = proxy_->stats().bytes_to_server;
  other_client.Send("lost");
  server_.Send("lost");
  EXPECT_TRUE(
      proxy_->Await([&](const ProxyStats& stats) { return stats.bytes_to_server == passed + 4; }));
  ASSERT_NO_FATAL_FAILURE(Connect());
  client_.Send("later");
  EXPECT_EQ(server_.Receive(5), "later") << "new connections work";
  pollfd quiet = {.fd = other_server.fd(), .events = POLLIN, .revents = 0};
  EXPECT_EQ(poll(&quiet, 1, 0), 0);
}

}  // namespace
}  // namespace tensord::proxy
