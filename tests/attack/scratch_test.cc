// Ops within all quotas whose intermediate values take several times the memory of their results.
// The server must refuse an op that its device has no room for, and keep all tensors and sessions.
#include <optional>
#include <string>
#include <vector>

#include "tensord/common/status_details.h"
#include "tensord/tests/attack/memory_growth.h"
#include "tensord/tests/expect_error.h"
#include "tensord/tests/integration/identity_fixture.h"
#include "tensord/tests/mib.h"

namespace tensord::attack {
namespace {

using integration::RpcClient;
using integration::RpcSession;
using Code = absl::StatusCode;

constexpr int64_t kLimitBytes = 64 * kMiB;

class ScratchAttackTest : public integration::IdentityFixture {
 protected:
  void SetUp() override {
    StartDaemon({TokenFileFlag({"mallory", "alice"})}, "cpu=64MiB");
    if (HasFatalFailure()) return;
    alice_ = std::make_unique<RpcClient>(daemon_->address(),
                                         integration::RpcCredentials{.token = "alice-token"});
    kept_ = std::make_unique<RpcSession>(*alice_);
    ASSERT_TRUE(kept_->Ones(1, {kAliceElements}).ok());
    attacker_ = std::make_unique<RpcClient>(daemon_->address(),
                                            integration::RpcCredentials{.token = "mallory-token"});
    session_ = std::make_unique<RpcSession>(*attacker_);
    growth_.emplace(*daemon_, "VmRSS");
  }

  // Expects that the other caller's tensor is unchanged, that both sessions go on, and that the
  // daemon's memory has not grown beyond the device's limit.
  void TearDown() override {
    const auto ones = kept_->ReadFloats(1);
    ASSERT_TRUE(ones.ok()) << ones.status();
    EXPECT_EQ(*ones, std::vector<float>(kAliceElements, 1.0f));
    EXPECT_TRUE(kept_->Add(1, 1, 2).ok());
    EXPECT_TRUE(session_->Ones(100, {16}).ok());
    EXPECT_TRUE(session_->Add(100, 100, 101).ok());
    EXPECT_TRUE(session_->ReadFloats(101).ok());
    growth_->ExpectBelow(kLimitBytes + kLimitBytes / 8 + 32 * kMiB);
    IdentityFixture::TearDown();
  }

  absl::Status Make(DType dtype, std::vector<int64_t> shape, uint64_t handle) {
    return session_
        ->Run("full", {}, handle, {{"shape", std::move(shape)}, {"value", 0.0}, {"dtype", dtype}},
              "cpu:0")
        .status();
  }

  // Expects that the device's limit refuses an op because of its intermediate values.
  static void ExpectRefused(const absl::Status& status, const std::string& result_bytes) {
    ExpectError(status, Code::kResourceExhausted,
                {"needs " + result_bytes + " bytes for its results and at least",
                 "bytes for intermediate values", "cpu:0 is out of memory",
                 "free of its limit of 67108864 bytes", "delete tensors there", "the caller holds ",
                 "other callers 1048576"});
    EXPECT_EQ(ErrorReason(status), "DEVICE_OUT_OF_MEMORY");
  }

  static constexpr int64_t kAliceElements = kMiB / 4;

  std::unique_ptr<RpcClient> alice_, attacker_;
  std::unique_ptr<RpcSession> kept_, session_;
  std::optional<MemoryGrowth> growth_;
};

TEST_F(ScratchAttackTest, SortAlongAnOuterAxis) {
  ASSERT_TRUE(session_->Ones(1, {3 << 19, 2}).ok());
  v1::SessionStreamRequest message = session_->Attach();
  v1::Op& op = *message.add_commands()->mutable_op();
  op.set_name("sort");
  op.add_inputs(1);
  op.set_output(2);
  op.set_num_outputs(2);
  (*op.mutable_attrs())["axis"].set_i(0);
  message.add_commands()->mutable_barrier()->set_barrier_id(1);  // answered when the op has run
  ASSERT_TRUE(RunStream(*attacker_, {message}, [](const auto& /*answer*/) {}).ok());
  ExpectRefused(session_->Read(2).status(), "37748736");
  ExpectRefused(session_->Read(3).status(), "37748736");
}

TEST_F(ScratchAttackTest, ProductOfHalves) {
  ASSERT_TRUE(Make(DType::kFloat16, {3400, 16}, 1).ok());
  ASSERT_TRUE(Make(DType::kFloat16, {16, 3400}, 2).ok());
  ExpectRefused(session_->Run("matmul", {1, 2}, 3).status(), "23120000");
}

TEST_F(ScratchAttackTest, IndexByTwoTensors) {
  ASSERT_TRUE(Make(DType::kUInt8, {1, 1}, 1).ok());
  ASSERT_TRUE(Make(DType::kInt64, {6000, 1}, 2).ok());
  ASSERT_TRUE(Make(DType::kInt64, {1, 6000}, 3).ok());
  ExpectRefused(session_->Run("index", {1, 2, 3}, 4, {{"axis", int64_t{0}}}).status(), "36000000");
}

}  // namespace
}  // namespace tensord::attack
