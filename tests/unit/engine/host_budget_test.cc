// What definitions, programs, ops in flight and waits charge to the limits of host memory.
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tensord/server/engine/packed_ops.h"
#include "tensord/tests/unit/engine/engine_fixture.h"

namespace tensord::server {
namespace {

using Code = absl::StatusCode;

constexpr Limits kLimits{.max_host_bytes = 8 << 20, .max_host_bytes_per_principal = 4 << 20};

class EngineHostBudgetTest : public EngineFixture {
 protected:
  EngineHostBudgetTest() : EngineFixture({}, kLimits), packed_(engine_.get(), session_) {}

  // Expects that another principal can still compute.
  void ExpectRoomForOthers() {
    const SessionRef other = *sessions_->Open(Named("honest"), kTestLeaseSeconds, "");
    const OpRequest ones{.op = "ones",
                         .output = 1,
                         .attrs = {{"shape", std::vector<int64_t>{2}}},
                         .device = "cpu:0"};
    EXPECT_TRUE(engine_->Run(other, ones).ok());
  }
  int64_t used_bytes() { return principals_.host_budget()->used(); }

  const TensorSpec two_{DType::kInt64, {2}};
  PackedOps packed_;
};

TEST_F(EngineHostBudgetTest, DefinitionsAreCharged) {
  uint32_t number = 0;
  absl::Status refused;
  while (refused.ok()) {
    const Attributes attrs{{"text", std::string(1000, 'x')}};
    refused = packed_.Define(++number, {"neg", attrs, "", 1});
  }
  ExpectError(refused, Code::kResourceExhausted, {"--max-host-bytes-per-principal"});
  EXPECT_GT(number, 1000u);
  EXPECT_LT(number, 4000u);
  ExpectRoomForOthers();
}

TEST_F(EngineHostBudgetTest, ProgramsAreChargedUntilTheyAreDropped) {
  ASSERT_TRUE(packed_.Define(1, {"neg", {}, "", 1}).ok());
  ASSERT_TRUE(Upload(1, {1, 2}).ok());
  std::vector<uint32_t> ops;
  for (uint32_t i = 0; i < 1000; ++i) ops.insert(ops.end(), {1, i});
  const int64_t before = used_bytes();
  for (uint32_t number = 1; number <= 10; ++number) {
    ASSERT_TRUE(packed_.AddProgram(number, "cpu:0", {two_}, ops, {1000}).ok());
  }
  ASSERT_TRUE(packed_.RunProgram(1, {1}, {11}).ok());
  ExpectError(packed_.RunProgram(10, {1}, {20}), Code::kResourceExhausted,
              {"--max-host-bytes-per-principal"});
  ExpectRoomForOthers();
  Settle();
  for (uint32_t number = 1; number <= 10; ++number) packed_.DropProgram(number);
  EXPECT_LT(used_bytes(), before + (128 << 10));
  ASSERT_TRUE(packed_.AddProgram(11, "cpu:0", {two_}, ops, {1000}).ok());
  EXPECT_TRUE(packed_.RunProgram(11, {1}, {21}).ok());
}

// The error of a program may contain a long name.
TEST_F(EngineHostBudgetTest, ErrorsOfProgramsAreCharged) {
  ASSERT_TRUE(packed_.Define(1, {std::string(100000, 'x'), {}, "", 1}).ok());
  const int64_t before = used_bytes();
  for (uint32_t number = 1; number <= 1000; ++number) {
    ASSERT_TRUE(packed_.AddProgram(number, "cpu:0", {two_}, {1, 0}, {1}).ok());
    ASSERT_FALSE(packed_.RunProgram(number, {1}, {100}).ok());
  }
  EXPECT_GT(used_bytes(), before);
  EXPECT_LE(used_bytes(), kLimits.max_host_bytes_per_principal);
}

TEST_F(EngineHostBudgetTest, OpsInFlightAreCharged) {
  ASSERT_TRUE(engine_->Promise(*session_, 1, two_, "cpu:0").ok());
  const int64_t before = used_bytes();
  const std::vector<Handle> inputs(1000, 1);
  absl::Status refused;
  Handle handle = 1;
  while (refused.ok()) {
    refused = Run("concat", inputs, ++handle, {{"axis", int64_t{0}}}).status();
    session_->Drop({handle});
  }
  ExpectError(refused, Code::kResourceExhausted, {"--max-host-bytes-per-principal"});
  EXPECT_LT(handle, 100u);
  ExpectRoomForOthers();
  (*session_->Find(1))->upload()->Fail(absl::CancelledError("test"));
  Settle();
  EXPECT_LT(used_bytes(), before + (128 << 10));
}

// A copy to the same device waits for its source, also if its handle was dropped.
TEST_F(EngineHostBudgetTest, CopiesThatWaitAreCharged) {
  ASSERT_TRUE(engine_->Promise(*session_, 1, two_, "cpu:0").ok());
  absl::Status refused;
  int copies = 0;
  while (refused.ok()) {
    refused = engine_->Copy(session_, 1, 2, "cpu:0", /*share=*/true).status();
    session_->Drop({2});
    ++copies;
  }
  ExpectError(refused, Code::kResourceExhausted, {"--max-host-bytes-per-principal"});
  EXPECT_LT(copies, 10000);
  ExpectRoomForOthers();
}

TEST_F(EngineHostBudgetTest, WaitsForManyTensorsAreCharged) {
  for (Handle handle = 1; handle <= 1000; ++handle) {
    ASSERT_TRUE(engine_->Promise(*session_, handle, two_, "cpu:0").ok());
  }
  absl::Status refused;
  int waits = 0;
  while (refused.ok()) {
    refused = engine_->WhenIdle(session_, [] {});
    ++waits;
  }
  ExpectError(refused, Code::kResourceExhausted, {"--max-host-bytes-per-principal"});
  EXPECT_LT(waits, 20);
  ExpectRoomForOthers();
}

}  // namespace
}  // namespace tensord::server
