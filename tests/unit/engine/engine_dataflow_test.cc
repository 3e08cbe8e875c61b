// Ops that wait for uploads, other devices and fences, and what happens when a session closes.
#include "tensord/tests/unit/engine/engine_fixture.h"

namespace tensord::server {
namespace {

using Code = absl::StatusCode;
using testing::ElementsAre;

const TensorSpec kTwo{DType::kInt64, {2}};

using EngineDataflowTest = EngineFixture;

TEST_F(EngineDataflowTest, WaitingOpBlocksNoOtherOp) {
  ASSERT_TRUE(engine_->Promise(*session_, 1, kTwo, "cpu:0").ok());
  ASSERT_TRUE(Run("neg", {1}, 2).ok());
  ASSERT_TRUE(Run("add", {2, 2}, 3).ok());
  ASSERT_TRUE(Full(4, 2, 5).ok());
  ASSERT_TRUE(Run("neg", {4}, 5).ok());
  EXPECT_THAT(*Read(5), ElementsAre(-5, -5));
  EXPECT_FALSE((*session_->Find(3))->done());
  ASSERT_TRUE(Upload(1, {10, 20}).ok());
  EXPECT_THAT(*Read(3), ElementsAre(-20, -40));
}

TEST_F(EngineDataflowTest, UnpromisedUploadAppearsWhenItIsFinished) {
  auto upload = engine_->BeginUpload(*session_, 1, kTwo, "cpu:1");
  ASSERT_TRUE(upload.ok());
  ExpectError(session_->Find(1), Code::kNotFound);
  EXPECT_EQ(UsedBytes(1), 16);
  const int64_t values[] = {7, 8};
  ASSERT_TRUE(device(1).Write(*upload->buffer, 0, values, 16).ok());
  ASSERT_TRUE(engine_->FinishUpload(*session_, *std::move(upload), absl::OkStatus()).ok());
  EXPECT_THAT(*Read(1), ElementsAre(7, 8));
}

TEST_F(EngineDataflowTest, FailedUploadFreesItsHandleAndMemory) {
  auto upload = engine_->BeginUpload(*session_, 1, kTwo, "cpu:0");
  ASSERT_TRUE(upload.ok());
  ExpectError(engine_->FinishUpload(*session_, *std::move(upload), absl::CancelledError("cut")),
              Code::kCancelled);
  EXPECT_TRUE(session_->CheckFree(1).ok());
  EXPECT_EQ(UsedBytes(0), 0);
}

TEST_F(EngineDataflowTest, FailedUploadFailsItsPromiseAndDependents) {
  ASSERT_TRUE(engine_->Promise(*session_, 1, kTwo, "cpu:0").ok());
  ASSERT_TRUE(Run("neg", {1}, 2).ok());
  auto upload = engine_->BeginUpload(*session_, 1, kTwo, "cpu:0");
  ASSERT_TRUE(upload.ok());
  EXPECT_TRUE(upload->promised);
  ExpectError(
      engine_->FinishUpload(*session_, *std::move(upload), absl::CancelledError("cut short")),
      Code::kCancelled);
  ExpectError(Outcome(2), Code::kCancelled, {"cut short"});
  EXPECT_EQ(UsedBytes(0), 0);
}

TEST_F(EngineDataflowTest, AHandleIsUploadedOnce) {
  ASSERT_TRUE(engine_->Promise(*session_, 1, kTwo, "cpu:0").ok());
  auto upload = engine_->BeginUpload(*session_, 1, kTwo, "cpu:0");
  ASSERT_TRUE(upload.ok());
  ExpectError(engine_->BeginUpload(*session_, 1, kTwo, "cpu:0"), Code::kAlreadyExists, {"1"});
  ASSERT_TRUE(engine_->FinishUpload(*session_, *std::move(upload), absl::OkStatus()).ok());
  ExpectError(Upload(1, {1, 2}), Code::kAlreadyExists, {"1"});
  ExpectError(engine_->Promise(*session_, 1, kTwo, "cpu:0"), Code::kAlreadyExists, {"1"});
  EXPECT_EQ(UsedBytes(0), 16);
}

TEST_F(EngineDataflowTest, OnlyOneOfTwoUploadsToAHandleSucceeds) {
  auto first = engine_->BeginUpload(*session_, 1, kTwo, "cpu:0");
  auto second = engine_->BeginUpload(*session_, 1, kTwo, "cpu:0");
  ASSERT_TRUE(first.ok());
  ASSERT_TRUE(second.ok());
  EXPECT_TRUE(engine_->FinishUpload(*session_, *std::move(second), absl::OkStatus()).ok());
  ExpectError(engine_->FinishUpload(*session_, *std::move(first), absl::OkStatus()),
              Code::kAlreadyExists);
  EXPECT_EQ(UsedBytes(0), 16);
}

TEST_F(EngineDataflowTest, DroppedPromiseFailsItsDependents) {
  ASSERT_TRUE(Full(1, 1000, 7).ok());
  ASSERT_TRUE(engine_->Promise(*session_, 2, {DType::kInt64, {1000}}, "cpu:0").ok());
  ASSERT_TRUE(Run("add", {1, 2}, 3).ok());
  session_->Drop({1, 2});
  ExpectError(Outcome(3), Code::kFailedPrecondition, {"tensor 2", "deleted"});
  Settle();
  EXPECT_EQ(UsedBytes(0), 0);
}

TEST_F(EngineDataflowTest, UploadMustMatchItsPromise) {
  for (const auto& [spec, device] :
       {std::pair(TensorSpec{DType::kInt64, {3}}, "cpu:0"),
        std::pair(TensorSpec{DType::kInt32, {2}}, "cpu:0"), std::pair(kTwo, "cpu:1")}) {
    ASSERT_TRUE(engine_->Promise(*session_, 1, kTwo, "cpu:0").ok());
    ASSERT_TRUE(Run("neg", {1}, 2).ok());
    ExpectError(engine_->BeginUpload(*session_, 1, spec, device), Code::kInvalidArgument,
                {"1", "int64[2]", "cpu:0", spec.ToString(), device});
    ExpectError(Outcome(2), Code::kInvalidArgument, {"promised"});
    ASSERT_TRUE(session_->Delete({1, 2}).ok());
  }
}

TEST_F(EngineDataflowTest, PromisesAndUploadsAreChecked) {
  const TensorSpec negative{DType::kInt64, {-1}};
  const TensorSpec untyped{DType::kUnspecified, {1}};
  const TensorSpec huge{DType::kInt64, {int64_t{1} << 40, int64_t{1} << 40}};
  for (const TensorSpec& spec : {negative, untyped, huge}) {
    ExpectError(engine_->Promise(*session_, 1, spec, "cpu:0"), Code::kInvalidArgument);
    ExpectError(engine_->BeginUpload(*session_, 1, spec, "cpu:0"), Code::kInvalidArgument);
  }
  ExpectError(engine_->Promise(*session_, 0, kTwo, "cpu:0"), Code::kInvalidArgument);
  ExpectError(engine_->BeginUpload(*session_, 0, kTwo, "cpu:0"), Code::kInvalidArgument);
  ExpectError(engine_->Promise(*session_, 1, kTwo, "cpu:5"), Code::kNotFound, {"cpu:5"});
  ExpectError(engine_->BeginUpload(*session_, 1, kTwo, "cpu:5"), Code::kNotFound, {"cpu:5"});
  EXPECT_TRUE(session_->CheckFree(1).ok());
}

TEST_F(EngineDataflowTest, OtherSessionsRunWhileOneWaits) {
  ASSERT_TRUE(engine_->Promise(*session_, 1, kTwo, "cpu:0").ok());
  ASSERT_TRUE(Run("neg", {1}, 2).ok());
  const SessionRef other = *sessions_->Open(TestPrincipal(), kTestLeaseSeconds, "other");
  const auto theirs = engine_->Run(other, {.op = "ones",
                                           .output = 1,
                                           .attrs = {{"shape", std::vector<int64_t>{2}}},
                                           .device = "cpu:0"});
  ASSERT_TRUE(theirs.ok());
  Event done;
  (*theirs)->WhenDone([done] { done.Set(); });
  EXPECT_TRUE(done.Wait());
}

TEST_F(EngineDataflowTest, OneDeviceWorksWhileTheOtherIsBusy) {
  device(0).Hold();
  ASSERT_TRUE(Full(1, 2, 1, "cpu:0").ok());
  ASSERT_TRUE(device(0).WaitUntilHeld());
  ASSERT_TRUE(Full(2, 2, 2, "cpu:1").ok());
  EXPECT_THAT(*Read(2), ElementsAre(2, 2));
  ASSERT_TRUE(engine_->Copy(session_, 1, 3, "cpu:1", false).ok());
  EXPECT_FALSE((*session_->Find(3))->done());
  device(0).Release();
  EXPECT_THAT(*Read(3), ElementsAre(1, 1));
}

TEST_F(EngineDataflowTest, DeletedTensorLivesUntilItsReadersHaveRun) {
  device(0).Hold();
  ASSERT_TRUE(Full(1, 2, 4).ok());
  ASSERT_TRUE(Run("neg", {1}, 2).ok());
  ASSERT_TRUE(session_->Delete({1}).ok());
  ASSERT_TRUE(Full(1, 2, 9).ok()) << "its handle may be used again at once";
  device(0).Release();
  EXPECT_THAT(*Read(2), ElementsAre(-4, -4));
  EXPECT_THAT(*Read(1), ElementsAre(9, 9));
  Settle();
  EXPECT_EQ(UsedBytes(0), 32);
}

TEST_F(EngineDataflowTest, IdleWaitsForRunningOpsAndUploads) {
  device(1).Hold();
  ASSERT_TRUE(Full(1, 2, 1, "cpu:1").ok());
  ASSERT_TRUE(device(1).WaitUntilHeld());
  ASSERT_TRUE(engine_->Promise(*session_, 2, kTwo, "cpu:0").ok());
  Event idle;
  ASSERT_TRUE(engine_->WhenIdle(session_, [idle] { idle.Set(); }).ok());
  ASSERT_TRUE(Upload(2, {1, 2}).ok());
  EXPECT_FALSE(idle.happened());
  device(1).Release();
  EXPECT_TRUE(idle.Wait());
}

TEST_F(EngineDataflowTest, IdleWithNothingToDoCallsBack) { Settle(); }

TEST_F(EngineDataflowTest, ClosingFailsOpsThatWaitForAnUpload) {
  ASSERT_TRUE(engine_->Promise(*session_, 1, kTwo, "cpu:0").ok());
  const auto waiting = Run("neg", {1}, 2);
  ASSERT_TRUE(waiting.ok());
  Event done;
  (*waiting)->WhenDone([done] { done.Set(); });
  ASSERT_TRUE(sessions_->Close(session_->principal(), session_->id()).ok());
  ASSERT_TRUE(done.Wait());
  EXPECT_FALSE((*waiting)->status().ok());
}

TEST_F(EngineDataflowTest, EngineMayBeDestroyedDuringWork) {
  device(0).Hold();
  for (Handle handle = 1; handle < 50; ++handle) ASSERT_TRUE(Full(handle, 2, 1).ok());
  for (Handle handle = 1; handle < 50; ++handle) {
    ASSERT_TRUE(engine_->Copy(session_, handle, 100 + handle, "cpu:1", false).ok());
  }
  ASSERT_TRUE(engine_->Promise(*session_, 500, kTwo, "cpu:0").ok());
  ASSERT_TRUE(Run("neg", {500}, 501).ok());
  device(0).Release();
  session_.reset();
  sessions_.reset();
  devices_.clear();  // the engine owns them
  engine_.reset();
}

// A device whose kernels may still run after Launch() has returned, like a GPU.
class StreamOrderedTest : public EngineFixture {
 protected:
  StreamOrderedTest() : EngineFixture({.host_accessible = false}) {}
};

TEST_F(StreamOrderedTest, ReadableMeansFenced) {
  device(0).HoldFences();
  ASSERT_TRUE(Full(1, 2, 3).ok());
  Event readable;
  engine_->WhenReadable(*session_->Find(1), [readable](const absl::Status&) { readable.Set(); });
  ASSERT_TRUE(device(0).WaitUntilFenceHeld());
  EXPECT_FALSE(readable.happened());
  device(0).ReleaseFences();
  EXPECT_TRUE(readable.Wait());
  EXPECT_THAT(*Read(1), ElementsAre(3, 3));
}

TEST_F(StreamOrderedTest, ACopyWaitsForTheSourcesFence) {
  device(0).HoldFences();
  ASSERT_TRUE(Full(1, 2, 3).ok());
  ASSERT_TRUE(engine_->Copy(session_, 1, 2, "cpu:1", false).ok());
  ASSERT_TRUE(device(0).WaitUntilFenceHeld());
  EXPECT_THAT(device(1).launched(), ElementsAre());
  device(0).ReleaseFences();
  EXPECT_THAT(*Read(2), ElementsAre(3, 3));
}

TEST_F(StreamOrderedTest, IdleMeansFenced) {
  device(0).HoldFences();
  ASSERT_TRUE(Full(1, 2, 3).ok());
  Event idle;
  ASSERT_TRUE(engine_->WhenIdle(session_, [idle] { idle.Set(); }).ok());
  ASSERT_TRUE(device(0).WaitUntilFenceHeld());
  EXPECT_FALSE(idle.happened());
  device(0).ReleaseFences();
  EXPECT_TRUE(idle.Wait());
}

}  // namespace
}  // namespace tensord::server
