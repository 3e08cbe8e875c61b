#include "tensord/server/rpc/auth/connection.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <memory>
#include <set>
#include <thread>
#include <vector>

#include "tensord/server/rpc/auth/limited_socket.h"

namespace tensord::server {
namespace {

constexpr int64_t kMaxMessageBytes = 1 << 20;
constexpr int kRounds = 20;
// More than Connection needs to resolve a deadlock.
constexpr int kInspections = 10;

// A connection over loopback, whose peer sends without end. The test reads it as gRPC does.
class ConnectionTest : public testing::Test {
 protected:
  void SetUp() override {
    const int listener = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in at = {};
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(at);
    auto* const address = reinterpret_cast<sockaddr*>(&at);
    ASSERT_EQ(bind(listener, address, size), 0);
    ASSERT_EQ(listen(listener, 1), 0);
    ASSERT_EQ(getsockname(listener, address, &size), 0);
    sender_ = socket(AF_INET, SOCK_STREAM, 0);
    ASSERT_EQ(connect(sender_, address, size), 0);
    receiver_ = accept4(listener, nullptr, nullptr, SOCK_NONBLOCK);
    ASSERT_GE(receiver_, 0);
    close(listener);
    auto limited = LimitedSocket::Make(
        receiver_,
        {.limit_bytes = Connection::kUnadmittedWindow, .pool = {}, .stalled = &stalled_, .id = 1});
    ASSERT_NE(limited, nullptr);
    connection_ = std::make_unique<Connection>(1, "127.0.0.1", "127.0.0.1:1", kMaxMessageBytes,
                                               std::move(limited), &stalled_);
    sending_ = std::thread([this] {
      const std::vector<char> bytes(64 << 10);
      while (send(sender_, bytes.data(), bytes.size(), MSG_NOSIGNAL) > 0) {
      }
    });
    call_.end = [this](const absl::Status& status) { ended_ = status; };
    connection_->AddAdmitted(&call_, /*headers_bytes=*/0, ReceivePool(), {});
    connection_->SetState(&call_, Connection::CallState::kReading);
  }
  void TearDown() override {
    // Ends a send() that waits for room, also if the receiver's buffer is full.
    shutdown(sender_, SHUT_RDWR);
    if (sending_.joinable()) sending_.join();
    connection_.reset();
    close(sender_);
    close(receiver_);
  }

  // Reads until the limit is reached.
  void Read() {
    std::vector<char> bytes(1 << 20);
    const auto give_up_at = Connection::Clock::now() + std::chrono::seconds(30);
    while (!connection_->stalled() && Connection::Clock::now() < give_up_at) {
      iovec buffer = {bytes.data(), bytes.size()};
      msghdr message = {};
      message.msg_iov = &buffer;
      message.msg_iovlen = 1;
      recvmsg(receiver_, &message, 0);
    }
    ASSERT_TRUE(connection_->stalled());
  }
  // Expects that the connection isn't read although there is credit, and that nothing is closed.
  void ExpectDelayed() {
    const int64_t before = connection_->received_bytes();
    connection_->AddCredit(before, 1);
    Read();
    EXPECT_EQ(connection_->received_bytes(), before);
    for (int i = 0; i < kInspections; ++i) EXPECT_EQ(Inspect(), Connection::Inspection::kOpen);
    EXPECT_TRUE(ended_.ok()) << ended_;
  }
  // Reads as much as the connection may grant.
  void FillLargestWindow() {
    for (int i = 0; i < kRounds; ++i) {
      Read();
      ASSERT_TRUE(connection_->BeginRound());
      connection_->ResolveStall();
    }
    Read();
    ASSERT_GT(connection_->received_bytes(), kMaxMessageBytes);
  }

  Connection::Inspection Inspect() {
    std::set<BudgetRef> relieved;
    return connection_->Inspect(&relieved);
  }

  StalledSockets stalled_;
  int sender_ = -1;
  int receiver_ = -1;
  std::unique_ptr<Connection> connection_;
  std::thread sending_;
  Connection::Call call_;
  absl::Status ended_;
};

TEST_F(ConnectionTest, EndsACallWhoseMessageIsTooLarge) {
  FillLargestWindow();
  for (int i = 0; i < kInspections; ++i) {
    EXPECT_EQ(Inspect(), Connection::Inspection::kOpen);
    Read();
  }
  EXPECT_EQ(ended_, MessageTooLarge(kMaxMessageBytes));
}

// Empty queues don't prove that gRPC has passed on what it has received.
TEST_F(ConnectionTest, RoundsWithoutProgressEndNoCall) {
  FillLargestWindow();
  for (int i = 0; i < kRounds; ++i) {
    ASSERT_TRUE(connection_->BeginRound());
    EXPECT_FALSE(connection_->ResolveStall());
  }
  EXPECT_TRUE(ended_.ok()) << ended_;
}

TEST_F(ConnectionTest, ManyExpiredCallsDelayBytesAndCloseNothing) {
  Read();
  for (int i = 0; i < 20'000; ++i) EXPECT_TRUE(connection_->CountCancelled(/*has_deadline=*/true));
  ExpectDelayed();
}

TEST_F(ConnectionTest, IsReadAgainAfterAPause) {
  Read();
  for (int i = 0; i < 1100; ++i) EXPECT_TRUE(connection_->CountCancelled(/*has_deadline=*/true));
  const int64_t before = connection_->received_bytes();
  connection_->AddCredit(before, 1);
  const auto give_up_at = Connection::Clock::now() + std::chrono::seconds(30);
  while (connection_->received_bytes() == before && Connection::Clock::now() < give_up_at) {
    EXPECT_EQ(Inspect(), Connection::Inspection::kOpen);
    Read();
  }
  EXPECT_GT(connection_->received_bytes(), before);
}

// Refused calls whose answers the client doesn't read.
TEST_F(ConnectionTest, ManyUnsentAnswersDelayBytes) {
  Read();
  std::vector<Connection::Call> calls(100);
  for (Connection::Call& call : calls) {
    EXPECT_TRUE(connection_->AddRefused(&call, /*at_limit=*/true));
    connection_->RefusedCallAnswered(&call);
  }
  ExpectDelayed();
  for (Connection::Call& call : calls) connection_->Remove(&call);
  const int64_t before = connection_->received_bytes();
  Read();
  EXPECT_GT(connection_->received_bytes(), before);
}

TEST_F(ConnectionTest, ManyPublicCallsDelayBytes) {
  Read();
  for (int i = 0; i < 1000; ++i) {
    Connection::Call call;
    EXPECT_TRUE(connection_->AddRefused(&call, /*at_limit=*/false));
    connection_->ServedAsPublic();
    connection_->Remove(&call);
  }
  ExpectDelayed();
}

TEST_F(ConnectionTest, FloodOfResetsClosesTheConnection) {
  int accepted = 0;
  while (accepted < 10'000 && connection_->CountCancelled(/*has_deadline=*/false)) ++accepted;
  EXPECT_GE(accepted, 1024);  // a client may have so many calls, and cancel them
  EXPECT_LT(accepted, 5000);
}

TEST_F(ConnectionTest, AMessageThatArrivesLateSavesTheCall) {
  FillLargestWindow();
  for (int i = 0; i < kInspections; ++i) {
    EXPECT_EQ(Inspect(), Connection::Inspection::kOpen);
    Read();
    if (i % 4 != 3) continue;
    connection_->AddCredit(kMaxMessageBytes, 1);
    FillLargestWindow();
  }
  EXPECT_TRUE(ended_.ok()) << ended_;
}

}  // namespace
}  // namespace tensord::server
