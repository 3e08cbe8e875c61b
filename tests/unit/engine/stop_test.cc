// Ops that stop before they have finished: their session ends, their call is cancelled, or they
// run for too long.
#include <thread>

#include "tensord/common/status_details.h"
#include "tensord/server/device/stop_token.h"
#include "tensord/tests/unit/engine/engine_fixture.h"

namespace tensord::server {
namespace {

using Code = absl::StatusCode;
using testing::ElementsAre;

class EngineStopTest : public EngineFixture {
 protected:
  explicit EngineStopTest(Limits limits = {}) : EngineFixture({}, limits) {}

  static absl::Status OutcomeOf(const TensorRef& tensor) {
    Event done;
    tensor->WhenDone([done] { done.Set(); });
    if (!done.Wait()) return absl::DeadlineExceededError("the tensor isn't done");
    return tensor->status();
  }

  // Starts a program of three kernels on a large tensor, and holds the first kernel.
  TensorRef StartProgram() {
    const TensorSpec spec{DType::kInt64, {4000}};
    const Attributes attrs = {{"shape", std::vector<int64_t>{4000}}, {"value", int64_t{1}}};
    const Attributes none;
    ProgramSpec program{{}, {{"full", &attrs, {}}, {"neg", &none, {0}}, {"neg", &none, {1}}}, {2}};
    device(0).Hold();
    const auto prepared = engine_->Prepare(*session_, program, "cpu:0");
    EXPECT_TRUE(prepared.ok()) << prepared.status();
    const auto outputs = engine_->Run(session_, *prepared, {}, absl::Span<const Handle>({50}));
    EXPECT_TRUE(outputs.ok()) << outputs.status();
    EXPECT_TRUE(device(0).WaitUntilHeld());
    return (*outputs)[0];
  }

  // Acts as a unary call: keeps `tensor` until it is done.
  static void WaitOnBehalfOfACall(const TensorRef& tensor) {
    tensor->WhenDone([tensor] {});
  }

  // Another session, of another caller.
  absl::Status ComputeElsewhere() {
    const SessionRef other = *sessions_->Open(TestPrincipal("other"), kTestLeaseSeconds, "other");
    const auto made =
        engine_->Run(other, {.op = "full",
                             .inputs = {},
                             .output = 1,
                             .attrs = {{"shape", std::vector<int64_t>{2}}, {"value", int64_t{1}}},
                             .device = "cpu:0"});
    return made.ok() ? OutcomeOf(*made) : made.status();
  }
};

TEST_F(EngineStopTest, ProgramOfAClosedSessionStopsBetweenItsKernels) {
  const TensorRef output = StartProgram();
  ASSERT_TRUE(sessions_->Close(session_->principal(), session_->id()).ok());
  device(0).Release();
  ExpectError(OutcomeOf(output), Code::kFailedPrecondition,
              {"program (tensor 50)", "the session has ended"});
  EXPECT_THAT(device(0).launched(), ElementsAre("full"));
  EXPECT_TRUE(ComputeElsewhere().ok());
}

TEST_F(EngineStopTest, LayerOfAClosedSessionStopsBetweenItsSteps) {
  const auto full = [&](Handle handle, std::vector<int64_t> shape) {
    const auto made =
        engine_->Run(session_, {.op = "full",
                                .inputs = {},
                                .output = handle,
                                .attrs = {{"shape", std::move(shape)}, {"value", 0.5}},
                                .device = "cpu:0"});
    ASSERT_TRUE(made.ok()) << made.status();
    ASSERT_TRUE(OutcomeOf(*made).ok());
  };
  full(1, {1000, 1, 1});
  for (Handle handle = 2; handle < 5; ++handle) full(handle, {1, 1});
  const size_t before = device(0).launched().size();
  device(0).Hold();
  const Handle inputs[] = {1, 2, 3, 4};
  const auto outputs = engine_->RunOp(
      session_, {.op = "rnn_layer", .inputs = inputs, .output = 50, .num_outputs = 2});
  ASSERT_TRUE(outputs.ok()) << outputs.status();
  ASSERT_TRUE(device(0).WaitUntilHeld());
  ASSERT_TRUE(sessions_->Close(session_->principal(), session_->id()).ok());
  device(0).Release();
  ExpectError(OutcomeOf((*outputs)[0]), Code::kFailedPrecondition, {"the session has ended"});
  EXPECT_EQ(device(0).launched().size(), before + 1) << "a step has two kernels";
}

TEST_F(EngineStopTest, OpsOfAClosedSessionFail) {
  device(0).Hold();
  const auto running = Full(1, 2, 1);
  const auto queued = Run("neg", {1}, 2);
  ASSERT_TRUE(running.ok() && queued.ok());
  ASSERT_TRUE(device(0).WaitUntilHeld());
  ASSERT_TRUE(sessions_->Close(session_->principal(), session_->id()).ok());
  device(0).Release();
  for (const auto& tensor : {*running, *queued}) {
    ExpectError(OutcomeOf(tensor), Code::kFailedPrecondition, {"the session has ended"});
  }
  EXPECT_THAT(device(0).launched(), ElementsAre("full"));
  EXPECT_TRUE(Eventually([this] { return UsedBytes(0) == 0; }));
}

TEST_F(EngineStopTest, CopyOfAClosedSessionFails) {
  ASSERT_TRUE(Full(1, 2, 1).ok());
  Settle();
  device(1).Hold();
  const auto copy = engine_->Copy(session_, 1, 2, "cpu:1", /*share=*/false);
  ASSERT_TRUE(copy.ok());
  ASSERT_TRUE(device(1).WaitUntilHeld());
  ASSERT_TRUE(sessions_->Close(session_->principal(), session_->id()).ok());
  device(1).Release();
  ExpectError(OutcomeOf(*copy), Code::kFailedPrecondition,
              {"copy_to_device (tensor 2)", "the session has ended"});
  EXPECT_TRUE(Eventually([this] { return UsedBytes(1) == 0; }));
}

TEST_F(EngineStopTest, ClosedSessionKeepsWhatAnotherSessionShares) {
  ASSERT_TRUE(Full(1, 2, 7).ok());
  Settle();
  const TensorRef own = *session_->Find(1);
  const SessionRef other = *sessions_->Open(TestPrincipal("other"), kTestLeaseSeconds, "other");
  const auto shared = std::make_shared<Tensor>(9, own->spec(), own->slot(), own->buffer());
  ASSERT_TRUE(other->Insert(shared).ok());
  device(0).Hold();
  // The handle is dropped, so the op would overwrite the tensor's memory if it weren't shared.
  const auto result = Run("neg", {1}, 2);
  session_->Drop({1});
  ASSERT_TRUE(device(0).WaitUntilHeld());
  ASSERT_TRUE(sessions_->Close(session_->principal(), session_->id()).ok());
  device(0).Release();
  ExpectError(OutcomeOf(*result), Code::kFailedPrecondition);
  EXPECT_THAT(*ReadTensor<int64_t>(*engine_, shared), ElementsAre(7, 7));
}

TEST_F(EngineStopTest, AbandonedOpStopsAndItsHandleIsFree) {
  TensorRef output = StartProgram();
  WaitOnBehalfOfACall(output);
  const std::weak_ptr<Tensor> weak = output;
  session_->Abandon(std::move(output));
  EXPECT_TRUE(session_->CheckFree(50).ok());
  Event done;
  weak.lock()->WhenDone([done, weak] { done.Set(); });
  device(0).Release();
  ASSERT_TRUE(done.Wait());
  EXPECT_TRUE(Eventually([&] { return weak.expired(); }));
  EXPECT_THAT(device(0).launched(), ElementsAre("full"));
  EXPECT_TRUE(ComputeElsewhere().ok());
  EXPECT_TRUE(Full(50, 1, 1).ok()) << "the session works on";
}

TEST_F(EngineStopTest, AbandonedOpThatHasNotBegunNeverRuns) {
  device(0).Hold();
  ASSERT_TRUE(Full(1, 2, 1).ok());
  ASSERT_TRUE(device(0).WaitUntilHeld());
  TensorRef queued = *Run("neg", {1}, 2);
  WaitOnBehalfOfACall(queued);
  session_->Abandon(std::move(queued));
  device(0).Release();
  Settle();
  EXPECT_THAT(device(0).launched(), ElementsAre("full"));
  EXPECT_THAT(*Read(1), ElementsAre(1, 1)) << "other ops of the session aren't affected";
}

TEST_F(EngineStopTest, AbandonedOpContinuesIfItsResultIsUsed) {
  TensorRef output = StartProgram();
  WaitOnBehalfOfACall(output);
  ASSERT_TRUE(Run("neg", {50}, 51).ok());
  session_->Abandon(std::move(output));
  device(0).Release();
  EXPECT_EQ((*Read(51))[0], -1);
  EXPECT_EQ((*Read(50))[0], 1);
}

TEST_F(EngineStopTest, AbandoningAFinishedOpKeepsItsResult) {
  TensorRef output = *Full(1, 2, 3);
  ASSERT_TRUE(OutcomeOf(output).ok());
  WaitOnBehalfOfACall(output);
  session_->Abandon(std::move(output));
  EXPECT_THAT(*Read(1), ElementsAre(3, 3));
}

class TimeLimitTest : public EngineStopTest {
 protected:
  TimeLimitTest() : EngineStopTest({.max_op_seconds = 1}) {}
};

TEST_F(TimeLimitTest, ProgramThatRunsForTooLongStops) {
  const TensorRef output = StartProgram();
  const auto limit = StopToken::Clock::now() + std::chrono::seconds(1);
  std::this_thread::sleep_until(limit);
  device(0).Release();
  const absl::Status status = OutcomeOf(output);
  ExpectError(status, Code::kResourceExhausted, {"program (tensor 50)", "--max-op-seconds=1"});
  EXPECT_EQ(ErrorReason(status), "OP_SECONDS_EXCEEDED");
  EXPECT_THAT(device(0).launched(), ElementsAre("full"));
  EXPECT_TRUE(Full(1, 1, 1).ok()) << "the session works on";
  EXPECT_THAT(*Read(1), ElementsAre(1));
}

}  // namespace
}  // namespace tensord::server
