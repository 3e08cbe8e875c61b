// A daemon that is attacked, and its legitimate clients.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tensord/tests/attack/memory_growth.h"
#include "tensord/tests/attack/raw_http2.h"
#include "tensord/tests/integration/daemon_fixture.h"
#include "tensord/tests/integration/identity_fixture.h"

namespace tensord::attack {

inline constexpr int64_t kMaxGrowthBytes = 64 << 20;

// Expects that a new client without credentials is served.
inline void ExpectHealthy(const std::string& address) {
  integration::RpcClient probe(address);
  const auto health = probe.Health("");
  ASSERT_TRUE(health.ok()) << health.status();
  EXPECT_EQ(*health, "SERVING");
}

// A daemon that requires no credentials. After each test, old and new legitimate clients must be
// served, and the daemon's memory must have grown by less than `max_growth_bytes_`.
class Http2Fixture : public integration::DaemonFixture {
 protected:
  Http2Fixture() = default;
  explicit Http2Fixture(const std::vector<std::string>& flags) : DaemonFixture(flags) {}

  void SetUp() override {
    DaemonFixture::SetUp();
    if (HasFatalFailure()) return;
    ASSERT_TRUE(session_->Ones(1, {16}).ok());
    growth_.emplace(*daemon_, "VmHWM");
  }

  void TearDown() override {
    ExpectServed();
    if (growth_.has_value()) growth_->ExpectBelow(max_growth_bytes_);
    DaemonFixture::TearDown();
  }

  // Expects that old and new legitimate clients are served.
  void ExpectServed() {
    const auto values = session_->ReadFloats(1);
    EXPECT_TRUE(values.ok()) << values.status();
    ExpectHealthy(daemon_->address());
  }

  int64_t max_growth_bytes_ = kMaxGrowthBytes;
  std::optional<MemoryGrowth> growth_;
};

// A daemon that requires a token. After each test, alice and a probe without credentials must be
// served, and the daemon's memory must have grown by less than `max_growth_bytes_`.
class TokenAttackFixture : public integration::IdentityFixture {
 protected:
  static constexpr char kAlice[] = "alice-token";

  void SetUp() override {
    StartDaemon({"--token-file=" + folder_.Write("tokens", Line("alice", kAlice))});
    if (HasFatalFailure()) return;
    ExpectServed();
    growth_.emplace(*daemon_, "VmHWM");
  }

  void TearDown() override {
    ExpectServed();
    if (growth_.has_value()) growth_->ExpectBelow(max_growth_bytes_);
    IdentityFixture::TearDown();
  }

  void ExpectServed() {
    const absl::Status alice = Ask(kAlice);
    EXPECT_TRUE(alice.ok()) << alice;
    ExpectHealthy(daemon_->address());
  }

  int64_t max_growth_bytes_ = kMaxGrowthBytes;
  std::optional<MemoryGrowth> growth_;
};

}  // namespace tensord::attack
