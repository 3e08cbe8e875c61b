#include "tensord/server/rpc/auth/limited_socket.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"

namespace tensord::server {
namespace {

constexpr int kTimeoutMs = 30000;
constexpr uint64_t kId = 7;  // of the limited socket

// A TCP connection over loopback. The test reads the accepted end as gRPC does: by recvmsg(2), and
// edge-triggered.
class LimitedSocketTest : public testing::Test {
 protected:
  void SetUp() override {
    listener_ = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in at = {};
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(at);
    ASSERT_EQ(bind(listener_, reinterpret_cast<sockaddr*>(&at), size), 0);
    ASSERT_EQ(listen(listener_, 1), 0);
    ASSERT_EQ(getsockname(listener_, reinterpret_cast<sockaddr*>(&at), &size), 0);
    sender_ = socket(AF_INET, SOCK_STREAM, 0);
    ASSERT_EQ(connect(sender_, reinterpret_cast<sockaddr*>(&at), size), 0);
    receiver_ = accept4(listener_, nullptr, nullptr, SOCK_NONBLOCK);
    ASSERT_GE(receiver_, 0);
    epoll_ = epoll_create1(0);
    epoll_event event = {.events = EPOLLIN | EPOLLET, .data = {}};
    ASSERT_EQ(epoll_ctl(epoll_, EPOLL_CTL_ADD, receiver_, &event), 0);
  }
  void TearDown() override {
    limited_.reset();
    for (const int fd : {listener_, sender_, receiver_, epoll_}) {
      if (fd >= 0) close(fd);
    }
  }

  void Limit(int64_t bytes) {
    limited_ = LimitedSocket::Make(
        receiver_,
        {.limit_bytes = bytes, .pool = {.held = used_}, .stalled = &stalled_, .id = kId});
    ASSERT_NE(limited_, nullptr);
  }
  void Send(const std::string& bytes) {
    ASSERT_EQ(send(sender_, bytes.data(), bytes.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(bytes.size()));
  }
  // Waits until epoll reports the receiver as readable, which it does once for each change. Returns
  // false at the timeout.
  bool AwaitReadable(int timeout_ms = kTimeoutMs) {
    epoll_event event = {};
    return epoll_wait(epoll_, &event, 1, timeout_ms) == 1;
  }
  // Receives into two buffers. Returns the bytes, "EAGAIN", "end" or "error".
  std::string Receive() {
    char first[4];
    char second[100];
    iovec buffers[] = {{first, sizeof(first)}, {second, sizeof(second)}};
    msghdr message = {};
    message.msg_iov = buffers;
    message.msg_iovlen = 2;
    const ssize_t received = recvmsg(receiver_, &message, 0);
    if (received == 0) return "end";
    if (received < 0) return errno == EAGAIN ? "EAGAIN" : "error";
    const auto bytes = static_cast<size_t>(received);
    if (bytes <= sizeof(first)) return std::string(first, bytes);
    return std::string(first, sizeof(first)) + std::string(second, bytes - sizeof(first));
  }

  // Sets a limit of one byte, sends two, and receives one. The other byte stays in the kernel.
  void ReachLimit() {
    Limit(1);
    Send("01");
    ASSERT_TRUE(AwaitReadable());
    ASSERT_EQ(Receive(), "0");
    ASSERT_EQ(Receive(), "EAGAIN");
  }

  int listener_ = -1;
  int sender_ = -1;
  int receiver_ = -1;
  int epoll_ = -1;
  StalledSockets stalled_;
  const BudgetRef used_ = std::make_shared<Budget>(10);  // the pool's
  std::unique_ptr<LimitedSocket> limited_;
};

TEST_F(LimitedSocketTest, ReceivesUpToTheLimitAndLosesNothing) {
  Limit(6);
  Send("0123456789abcdef");
  ASSERT_TRUE(AwaitReadable());
  EXPECT_EQ(Receive(), "012345");
  EXPECT_EQ(Receive(), "EAGAIN");
  EXPECT_EQ(limited_->received_bytes(), 6);
  EXPECT_FALSE(AwaitReadable(0));
  limited_->Update(9, 6);
  ASSERT_TRUE(AwaitReadable());
  EXPECT_EQ(Receive(), "678");
  EXPECT_EQ(Receive(), "EAGAIN");
  limited_->RemoveLimit();
  ASSERT_TRUE(AwaitReadable());
  EXPECT_EQ(Receive(), "9abcdef");
  EXPECT_EQ(Receive(), "EAGAIN");  // nothing is there
}

TEST_F(LimitedSocketTest, ReportsThatItIsStalled) {
  Limit(100);
  Send("0");
  ASSERT_TRUE(AwaitReadable());
  EXPECT_EQ(Receive(), "0");
  EXPECT_EQ(Receive(), "EAGAIN");  // nothing is there
  EXPECT_FALSE(limited_->stalled());
  limited_->Update(1, 1);
  EXPECT_EQ(Receive(), "EAGAIN");  // the limit
  EXPECT_TRUE(limited_->stalled());
  pollfd event = {stalled_.event_fd(), POLLIN, 0};
  EXPECT_EQ(poll(&event, 1, 0), 1);
  EXPECT_EQ(stalled_.TakeAll(), std::vector<uint64_t>{kId});
  EXPECT_EQ(poll(&event, 1, 0), 0);
  limited_->Update(2, 1);
  EXPECT_FALSE(limited_->stalled());
}

TEST_F(LimitedSocketTest, WaitsWhileThePoolIsFull) {
  used_->ChargePastLimit(7);
  Limit(100);
  Send("0123456789");
  ASSERT_TRUE(AwaitReadable());
  EXPECT_EQ(Receive(), "012");
  EXPECT_EQ(Receive(), "EAGAIN");
  EXPECT_TRUE(limited_->stalled());
  used_->Return(7);
  limited_->Update(100, 3);
  ASSERT_TRUE(AwaitReadable());
  EXPECT_EQ(Receive(), "3456789");
  EXPECT_EQ(limited_->pool_bytes(), 10);
  limited_->Update(100, 4);
  EXPECT_EQ(used_->used(), 4);
}

TEST_F(LimitedSocketTest, MovesItsBytesToAnotherPool) {
  Limit(100);
  Send("0123");
  ASSERT_TRUE(AwaitReadable());
  EXPECT_EQ(Receive(), "0123");
  const auto other = std::make_shared<Budget>(10);
  limited_->ChangePool({.held = other});
  EXPECT_EQ(used_->used(), 0);
  EXPECT_EQ(other->used(), 4);
  limited_.reset();
  EXPECT_EQ(other->used(), 0);
}

TEST(PeerNameTest, NamesAConnectionByItsId) {
  const int fds[2] = {socket(AF_INET, SOCK_STREAM, 0), socket(AF_INET, SOCK_STREAM, 0)};
  sockaddr_storage name = {};
  socklen_t size = sizeof(name);
  RunWithPeerName(0x123456789a, [&] {
    EXPECT_EQ(getpeername(fds[0], reinterpret_cast<sockaddr*>(&name), &size), 0);
  });
  char text[INET6_ADDRSTRLEN] = {};
  inet_ntop(AF_INET6, &reinterpret_cast<sockaddr_in6&>(name).sin6_addr, text, sizeof(text));
  EXPECT_EQ(ParsePeerName(absl::StrCat("ipv6:%5B", text, "%5D:0")), 0x123456789a);
  EXPECT_EQ(ParsePeerName(absl::StrCat("ipv6:[", text, "]:0")), 0x123456789a);
  EXPECT_EQ(ParsePeerName("ipv4:127.0.0.1:5"), 0);
  EXPECT_EQ(ParsePeerName("ipv6:%5B::1%5D:5"), 0);
  EXPECT_EQ(ParsePeerName("unix:/tmp/socket"), 0);
  // Outside, it has its usual meaning.
  EXPECT_EQ(getpeername(fds[0], reinterpret_cast<sockaddr*>(&name), &size), -1);
  EXPECT_EQ(errno, ENOTCONN);
  for (const int fd : fds) close(fd);
}

TEST_F(LimitedSocketTest, IsSupportedHere) { EXPECT_TRUE(LimitedSocket::CheckSupport().ok()); }

TEST_F(LimitedSocketTest, DoesNotLimitAnotherSocketThatGetsItsNumber) {
  ASSERT_NO_FATAL_FAILURE(ReachLimit());
  int others[2] = {};
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, others), 0);
  ASSERT_EQ(dup2(others[0], receiver_), receiver_);
  ASSERT_EQ(send(others[1], "other", 5, 0), 5);
  EXPECT_EQ(Receive(), "other");
  limited_->Update(100, 1);
  ASSERT_EQ(send(others[1], "more", 4, 0), 4);
  EXPECT_EQ(Receive(), "more");
  close(others[0]);
  close(others[1]);
}

TEST_F(LimitedSocketTest, EndsAResetConnectionThatHasReachedItsLimit) {
  ASSERT_NO_FATAL_FAILURE(ReachLimit());
  limited_->Reset();
  ASSERT_TRUE(AwaitReadable());
  const std::string received = Receive();
  EXPECT_TRUE(received == "end" || received == "error") << received;
  char byte = 0;
  EXPECT_EQ(recv(sender_, &byte, 1, 0), -1);
  EXPECT_EQ(errno, ECONNRESET);
}

// The reader gets the kernel's event of the reset, but still reads EAGAIN because of the limit.
TEST_F(LimitedSocketTest, EndsAConnectionThatIsReadDuringTheReset) {
  for (int round = 0; round < 1000 && !HasFailure(); ++round) {
    ASSERT_NO_FATAL_FAILURE(ReachLimit());
    std::string received = "EAGAIN";
    std::atomic<bool> reading = false;
    std::thread reader([&] {
      const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
      while (received == "EAGAIN" && std::chrono::steady_clock::now() < deadline) {
        reading = true;
        if (AwaitReadable(0)) received = Receive();
      }
    });
    while (!reading) std::this_thread::yield();
    limited_->Reset();
    reader.join();
    EXPECT_NE(received, "EAGAIN") << "round " << round;
    TearDown();
    SetUp();
  }
}

}  // namespace
}  // namespace tensord::server
