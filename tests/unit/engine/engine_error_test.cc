// Errors that stick to handles: out of memory, a failing kernel, a failing copy.
#include "tensord/tests/unit/engine/engine_fixture.h"

namespace tensord::server {
namespace {

using Code = absl::StatusCode;
using testing::ElementsAre;

const Attributes kNoAttributes;

class EngineErrorTest : public EngineFixture {
 protected:
  EngineErrorTest() : EngineFixture({.limit_bytes = 1000}) {}
};

TEST_F(EngineErrorTest, OutOfMemoryFailsOnlyItsTensor) {
  ASSERT_TRUE(Full(1, 100, 3).ok());
  ASSERT_TRUE(Full(2, 100, 3).ok()) << "memory is allocated when the op runs";
  ExpectError(Outcome(2), Code::kResourceExhausted,
              {"full (tensor 2)", "cpu:0", "800", "200", "1000"});
  EXPECT_EQ((*Read(1))[99], 3);
  EXPECT_EQ(UsedBytes(0), 800);
  ASSERT_TRUE(Full(3, 25, 4).ok());
  EXPECT_EQ((*Read(3))[24], 4);
  ASSERT_TRUE(session_->Delete({1, 2, 3}).ok());
  ASSERT_TRUE(Full(2, 100, 5).ok()) << "the handle of the failed tensor is free again";
  EXPECT_EQ((*Read(2))[0], 5);
}

TEST_F(EngineErrorTest, DependentsCarryTheRootError) {
  device(0).Hold();
  device(0).FailNext("neg", absl::InternalError("the kernel fell over"));
  ASSERT_TRUE(Full(1, 2, 3).ok());
  ASSERT_TRUE(Run("neg", {1}, 2).ok());
  ASSERT_TRUE(Run("add", {1, 2}, 3).ok());
  ASSERT_TRUE(Run("add", {3, 3}, 4).ok());
  ASSERT_TRUE(Run("reshape", {4}, 5, {{"shape", std::vector<int64_t>{2, 1}}}).ok());
  ASSERT_TRUE(engine_->Copy(session_, 5, 6, "cpu:1", false).ok());
  ASSERT_TRUE(engine_->Copy(session_, 5, 7, "cpu:0", true).ok());
  ASSERT_TRUE(Run("add", {1, 1}, 8).ok());
  device(0).Release();
  const absl::Status root = Outcome(2);
  ExpectError(root, Code::kInternal, {"neg (tensor 2)", "the kernel fell over"});
  for (Handle dependent : {3, 4, 5, 6, 7}) EXPECT_EQ(Outcome(dependent), root) << dependent;
  EXPECT_EQ(Read(4).status(), root);
  EXPECT_THAT(*Read(8), ElementsAre(6, 6)) << "independent tensors aren't affected";
  Settle();
  EXPECT_EQ(UsedBytes(0), 32);
  EXPECT_EQ(UsedBytes(1), 0);
}

TEST_F(EngineErrorTest, FailedInputGivesItsErrorAtOnce) {
  ASSERT_TRUE(Full(1, 100, 3).ok());
  ASSERT_TRUE(Full(2, 100, 3).ok());
  const absl::Status root = Outcome(2);
  ExpectError(root, Code::kResourceExhausted);
  EXPECT_EQ(Run("neg", {2}, 3).status(), root);
  EXPECT_EQ(engine_->Copy(session_, 2, 3, "cpu:1", false).status(), root);
  EXPECT_TRUE(session_->CheckFree(3).ok());
}

// The device can never hold these values, so no kernel is prepared for them.
TEST_F(EngineErrorTest, RefusesOpsWhoseValuesExceedTheDevice) {
  ExpectError(Full(1, 200, 3), Code::kResourceExhausted,
              {"full: the result int64[200]: cpu:0", "1600", "1000"});
  EXPECT_TRUE(session_->CheckFree(1).ok());
  const TensorSpec spec{DType::kInt64, {200}};
  ASSERT_TRUE(engine_->Promise(*session_, 1, spec, "cpu:0").ok());
  ExpectError(Run("sum", {1}, 2), Code::kResourceExhausted,
              {"sum: the input int64[200]: cpu:0", "1600", "1000"});
  EXPECT_TRUE(session_->CheckFree(2).ok());
}

TEST_F(EngineErrorTest, RefusesProgramsWhoseValuesExceedTheDevice) {
  const Attributes shape{{"shape", std::vector<int64_t>{200, 100}}};
  ProgramSpec spec;
  spec.inputs = {{DType::kInt64, {100}}};
  spec.steps = {{"broadcast_to", &shape, {0}}, {"sum", &kNoAttributes, {1}}};
  spec.outputs = {2};
  ExpectError(
      engine_->Prepare(*session_, spec, "cpu:0").status(), Code::kResourceExhausted,
      {"op 0 of a program: broadcast_to: the result int64[200, 100]: cpu:0", "160000", "1000"});
}

TEST_F(EngineErrorTest, AFailedCopySticks) {
  device(1).FailNext("copy", absl::UnavailableError("the link is down"));
  ASSERT_TRUE(Full(1, 2, 3).ok());
  ASSERT_TRUE(engine_->Copy(session_, 1, 2, "cpu:1", false).ok());
  ExpectError(Outcome(2), Code::kUnavailable, {"the link is down"});
  EXPECT_THAT(*Read(1), ElementsAre(3, 3));
  EXPECT_EQ(UsedBytes(1), 0);
}

TEST_F(EngineErrorTest, OutOfMemoryOfACopySticks) {
  ASSERT_TRUE(Full(1, 200, 3, "cpu:1").ok());
  ASSERT_TRUE(engine_->Copy(session_, 1, 2, "cpu:0", false).ok());
  ExpectError(Outcome(2), Code::kResourceExhausted, {"cpu:0", "1600", "1000"});
  EXPECT_EQ(UsedBytes(0), 0);
}

TEST_F(EngineErrorTest, UploadWithoutMemoryFailsItsPromise) {
  ASSERT_TRUE(Full(9, 100, 3).ok());
  ASSERT_TRUE(Outcome(9).ok());
  const TensorSpec spec{DType::kInt64, {50}};
  ASSERT_TRUE(engine_->Promise(*session_, 1, spec, "cpu:0").ok());
  ASSERT_TRUE(Run("neg", {1}, 2).ok());
  ExpectError(engine_->BeginUpload(*session_, 1, spec, "cpu:0"), Code::kResourceExhausted,
              {"400", "200", "1000"});
  ExpectError(Outcome(2), Code::kResourceExhausted);
  ExpectError(engine_->BeginUpload(*session_, 3, spec, "cpu:0"), Code::kResourceExhausted);
  EXPECT_TRUE(session_->CheckFree(3).ok());
}

class InFlightTest : public EngineFixture {
 protected:
  InFlightTest() : EngineFixture({}, {.max_ops_in_flight = 3}) {}
};

TEST_F(InFlightTest, LimitsOpsInFlight) {
  device(0).Hold();
  for (Handle handle : {1, 2, 3}) ASSERT_TRUE(Full(handle, 1, 1).ok());
  ExpectError(Full(4, 1, 1), Code::kResourceExhausted, {"3"});
  EXPECT_TRUE(session_->CheckFree(4).ok());
  device(0).Release();
  Settle();
  EXPECT_TRUE(Full(4, 1, 1).ok());
}

TEST_F(InFlightTest, CountsCopies) {
  ASSERT_TRUE(Full(1, 1, 1).ok());
  Settle();
  device(1).Hold();
  for (Handle handle : {2, 3, 4}) {
    ASSERT_TRUE(engine_->Copy(session_, 1, handle, "cpu:1", /*share=*/false).ok());
  }
  ExpectError(engine_->Copy(session_, 1, 5, "cpu:1", /*share=*/false), Code::kResourceExhausted,
              {"3"});
  EXPECT_TRUE(session_->CheckFree(5).ok());
  device(1).Release();
  Settle();
  EXPECT_TRUE(engine_->Copy(session_, 1, 5, "cpu:1", /*share=*/false).ok());
}

}  // namespace
}  // namespace tensord::server
