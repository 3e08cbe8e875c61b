// Jumps of the daemon's wall clock. A library in the daemon shifts it (shifted_clock.cc).
#include <filesystem>
#include <fstream>

#include "tensord/tests/integration/identity_fixture.h"
#include "tensord/tests/sanitized.h"

namespace tensord::attack {
namespace {

using integration::DaemonProcess;
using integration::Eventually;
using integration::RpcClient;
using integration::RpcSession;
using integration::UsedBytes;

constexpr char kAlice[] = "alice-token";
constexpr char kExpiring[] = "expiring-token";
constexpr int64_t kDaySeconds = 24 * 3600;

class ClockTest : public integration::IdentityFixture {
 protected:
  void SetUp() override {
    if (kSanitized) GTEST_SKIP() << "the sanitizer's library must be the first that is loaded";
    SetShift(0);
    folder_.Write("tokens", Line("alice", kAlice) +
                                Line("expiring", kExpiring, absl::Now() + absl::Hours(1)));
    auto daemon = DaemonProcess::Start(
        {"--token-file=" + folder_.File("tokens"), "--devices=cpu=1GiB,cpu=64MiB"},
        {"LD_PRELOAD=" TENSORD_SHIFTED_CLOCK_PATH, "TENSORD_CLOCK_SHIFT_FILE=" + ShiftFile()});
    ASSERT_TRUE(daemon.ok()) << daemon.status();
    daemon_ = *std::move(daemon);
    // Checks that the library shifts the clock.
    ASSERT_TRUE(Ask(kExpiring).ok());
    SetShift(kDaySeconds);
    ASSERT_TRUE(absl::IsUnauthenticated(Ask(kExpiring)));
    SetShift(0);
    ASSERT_TRUE(Ask(kExpiring).ok());
  }

  // Sets the difference between the daemon's wall clock and the real one.
  void SetShift(int64_t seconds) {
    std::fstream file(ShiftFile(), std::filesystem::exists(ShiftFile())
                                       ? std::ios::in | std::ios::out | std::ios::binary
                                       : std::ios::out | std::ios::binary);
    file.write(reinterpret_cast<const char*>(&seconds), sizeof(seconds));
  }

  std::string ShiftFile() const { return folder_.File("shift"); }
};

// After the jump, the test waits until another session's lease has ended: the server has then
// checked all leases.
TEST_F(ClockTest, NoLeaseEndsThroughAJumpForward) {
  RpcClient client(daemon_->address(), {.token = kAlice});
  RpcSession session(client, /*lease_seconds=*/600);
  ASSERT_TRUE(session.Ones(1, {16}).ok());
  SetShift(30 * kDaySeconds);
  RpcSession other(client, integration::kShortLeaseSeconds);
  ASSERT_TRUE(other.Ones(1, {16}, "cpu:1").ok());
  EXPECT_TRUE(Eventually([&] { return UsedBytes(client, "cpu:1") == 0; }));
  const auto values = session.ReadFloats(1);
  EXPECT_TRUE(values.ok()) << values.status();
}

TEST_F(ClockTest, LeasesEndDespiteAJumpBackward) {
  RpcClient client(daemon_->address(), {.token = kAlice});
  RpcSession session(client, integration::kShortLeaseSeconds);
  ASSERT_TRUE(session.Ones(1, {16}).ok());
  SetShift(-30 * kDaySeconds);
  EXPECT_TRUE(Eventually([&] { return UsedBytes(client, "cpu:0") == 0; }));
}

// If the clock jumps beyond the expiry of a token, the server ends the token's calls and refuses
// new ones. Calls of other callers continue.
TEST_F(ClockTest, ExpiredTokensAreRefusedAfterAJumpForward) {
  RpcClient client(daemon_->address(), {.token = kExpiring});
  const RpcSession session(client);
  auto stream = client.SessionStream();
  ASSERT_TRUE(stream->Send(session.Attach()));
  RpcClient alice(daemon_->address(), {.token = kAlice});
  const RpcSession alices(alice);
  auto alices_stream = alice.SessionStream();
  ASSERT_TRUE(alices_stream->Send(alices.Attach()));
  SetShift(2 * 3600);
  while (stream->Next().has_value()) {
  }
  ExpectError(stream->Finish(), absl::StatusCode::kUnauthenticated, {"expired"});
  ExpectError(Ask(kExpiring), absl::StatusCode::kUnauthenticated, {"expired"});
  EXPECT_TRUE(Ask(kAlice).ok());
  alices_stream->HalfClose();
  while (alices_stream->Next().has_value()) {
  }
  EXPECT_TRUE(alices_stream->Finish().ok());
}

// The calls have a deadline of 60 seconds, which a jump of a day must not affect.
TEST_F(ClockTest, WaitingCallsContinueAfterJumps) {
  RpcClient client(daemon_->address(), {.token = kAlice});
  RpcSession session(client);
  for (const int64_t shift : {kDaySeconds, -kDaySeconds, int64_t{0}}) {
    SetShift(shift);
    ASSERT_TRUE(session.Ones(1, {1024}).ok());
    const auto values = session.ReadFloats(1);
    ASSERT_TRUE(values.ok()) << values.status();
    ASSERT_TRUE(session.Delete({1}).ok());
  }
}

}  // namespace
}  // namespace tensord::attack
