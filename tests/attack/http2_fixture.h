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

// After each test of this fixture, legitimate clients must be served, and the daemon's memory must
// have grown by less than `max_growth_bytes_`. SetUp() of a derived class starts the daemon, then
// calls BeginAttack().
template <typename Base>
class AttackFixture : public Base {
 protected:
  using Base::Base;

  void BeginAttack() {
    if (this->HasFatalFailure()) return;
    ExpectServed();
    growth_.emplace(*this->daemon_, "VmHWM");
  }

  void TearDown() override {
    ExpectServed();
    if (growth_.has_value()) growth_->ExpectBelow(max_growth_bytes_);
    Base::TearDown();
  }

  // Expects that legitimate clients are served.
  virtual void ExpectServed() = 0;

  int64_t max_growth_bytes_ = kMaxGrowthBytes;
  std::optional<MemoryGrowth> growth_;
};

// A daemon that requires no credentials.
class Http2Fixture : public AttackFixture<integration::DaemonFixture> {
 protected:
  using AttackFixture::AttackFixture;

  void SetUp() override {
    DaemonFixture::SetUp();
    if (HasFatalFailure()) return;
    ASSERT_TRUE(session_->Ones(1, {16}).ok());
    BeginAttack();
  }

  // Expects that old and new clients are served.
  void ExpectServed() override {
    const auto values = session_->ReadFloats(1);
    EXPECT_TRUE(values.ok()) << values.status();
    ExpectHealthy(daemon_->address());
  }
};

// A daemon that requires a token.
class TokenAttackFixture : public AttackFixture<integration::IdentityFixture> {
 protected:
  static constexpr char kAlice[] = "alice-token";

  void SetUp() override {
    StartDaemon({TokenFileFlag({"alice"})});
    BeginAttack();
  }

  // Expects that alice and a probe without credentials are served.
  void ExpectServed() override {
    const absl::Status alice = Ask(kAlice);
    EXPECT_TRUE(alice.ok()) << alice;
    ExpectHealthy(daemon_->address());
  }
};

}  // namespace tensord::attack
