// Errors that only values show: an index out of range, on a device whose launch fails, and on one
// whose kernels report it later.
#include <memory>
#include <string>
#include <vector>

#include "tensord/tests/unit/engine/engine_fixture.h"

namespace tensord::server {
namespace {

using Code = absl::StatusCode;
using testing::ElementsAre;

constexpr FakeDevice::Options kLate{.host_accessible = false, .defers_checks = true};
constexpr FakeDevice::Options kLateWithGraphs{
    .host_accessible = false, .graphs = true, .defers_checks = true};

class ValueCheckTest : public EngineFixture {
 protected:
  explicit ValueCheckTest(FakeDevice::Options first = kLate) : EngineFixture(first) {
    EXPECT_TRUE(Upload(kX, {10, 20, 30}).ok());
    EXPECT_TRUE(Upload(kGood, {2, -3}).ok());
    EXPECT_TRUE(Upload(kBad, {1, 3, -4}).ok());
  }

  // Returns the error of index(kX, kBad).
  static std::string ErrorOf(Handle output) {
    return absl::StrCat("index (tensor ", output,
                        "): index 3 at [1] of input 1 is out of range for axis 0 of size 3");
  }

  static constexpr Handle kX = 101, kGood = 102, kBad = 103;
};

class EarlyValueCheckTest : public ValueCheckTest {
 protected:
  EarlyValueCheckTest() : ValueCheckTest(FakeDevice::Options{}) {}
};

TEST_F(EarlyValueCheckTest, BadIndexFailsTheLaunch) {
  ASSERT_TRUE(Run("index", {kX, kBad}, 1).ok());
  const absl::Status error = Outcome(1);
  EXPECT_EQ(error, absl::InvalidArgumentError(ErrorOf(1)));
  EXPECT_EQ(Run("neg", {1}, 2).status(), error);
  ASSERT_TRUE(Run("index", {kX, kGood}, 3).ok());
  EXPECT_THAT(*Read(3), ElementsAre(30, 10));
}

TEST_F(ValueCheckTest, BadIndexIsAnErrorOnceAFenceIsReached) {
  device(0).HoldFences();
  ASSERT_TRUE(Run("index", {kX, kBad}, 1).ok());
  EXPECT_TRUE(Outcome(1).ok()) << "the kernel may still be running";
  device(0).ReleaseFences();
  EXPECT_EQ(Read(1).status(), absl::InvalidArgumentError(ErrorOf(1)));
  EXPECT_EQ(Outcome(1), absl::InvalidArgumentError(ErrorOf(1)));
  EXPECT_EQ(device(0).num_check_cells(), 0);
}

TEST_F(ValueCheckTest, DependentsInheritTheRootErrorAndOtherTensorsDoNot) {
  device(0).HoldFences();
  ASSERT_TRUE(Run("index", {kX, kGood}, 1).ok());
  ASSERT_TRUE(Run("index", {kX, kBad}, 2).ok());
  ASSERT_TRUE(Run("neg", {2}, 3).ok());
  ASSERT_TRUE(Run("add", {3, 3}, 4).ok());
  ASSERT_TRUE(Run("reshape", {4}, 5, {{"shape", std::vector<int64_t>{3, 1}}}).ok());
  ASSERT_TRUE(engine_->Copy(session_, 5, 6, "cpu:0", true).ok());
  ASSERT_TRUE(engine_->Copy(session_, 5, 7, "cpu:1", false).ok());
  ASSERT_TRUE(Run("neg", {1}, 8).ok());
  ASSERT_TRUE(Run("neg", {kBad}, 9).ok());
  device(0).ReleaseFences();
  Settle();
  for (Handle dependent : {2, 3, 4, 5, 6, 7}) {
    EXPECT_EQ(Outcome(dependent), absl::InvalidArgumentError(ErrorOf(2))) << dependent;
  }
  EXPECT_THAT(*Read(8), ElementsAre(-30, -10));
  EXPECT_THAT(*Read(9), ElementsAre(-1, -3, 4));
}

TEST_F(ValueCheckTest, AnOpOnAResolvedErrorIsRefused) {
  ASSERT_TRUE(Run("index", {kX, kBad}, 1).ok());
  Settle();
  EXPECT_EQ(Run("neg", {1}, 2).status(), absl::InvalidArgumentError(ErrorOf(1)));
  EXPECT_TRUE(session_->CheckFree(2).ok());
}

TEST_F(ValueCheckTest, OfTwoBadInputsTheFirstGivesTheError) {
  device(0).HoldFences();
  ASSERT_TRUE(Run("index", {kX, kBad}, 1).ok());
  ASSERT_TRUE(Run("index", {kX, kBad}, 2).ok());
  ASSERT_TRUE(Run("add", {2, 1}, 3).ok());
  ASSERT_TRUE(Run("add", {1, 2}, 4).ok());
  device(0).ReleaseFences();
  Settle();
  EXPECT_EQ(Outcome(3), absl::InvalidArgumentError(ErrorOf(2)));
  EXPECT_EQ(Outcome(4), absl::InvalidArgumentError(ErrorOf(1)));
}

TEST_F(ValueCheckTest, AnInputThatIsChecked) {
  device(0).HoldFences();
  ASSERT_TRUE(Run("index", {kX, kBad}, 1).ok());
  ASSERT_TRUE(Run("index", {1, kBad}, 2).ok());
  ASSERT_TRUE(Run("index", {kX, kGood}, 3).ok());
  ASSERT_TRUE(Run("index", {3, kBad}, 4).ok());
  device(0).ReleaseFences();
  Settle();
  EXPECT_EQ(Outcome(2), absl::InvalidArgumentError(ErrorOf(1)));
  EXPECT_TRUE(Outcome(3).ok());
  ExpectError(Outcome(4), Code::kInvalidArgument,
              {"index (tensor 4): index 3 at [1] of input 1", "size 2"});
}

TEST_F(ValueCheckTest, ManyOpsWithoutAReadEnqueueAFence) {
  device(0).HoldFences();
  ASSERT_TRUE(Run("index", {kX, kBad}, 1).ok());
  for (Handle handle = 2; handle <= 64; ++handle)
    ASSERT_TRUE(Run("neg", {handle - 1}, handle).ok());
  ASSERT_TRUE(device(0).WaitUntilFenceHeld());
  device(0).ReleaseFences();
  EXPECT_EQ(Outcome(64), absl::InvalidArgumentError(ErrorOf(1)));
  EXPECT_EQ(device(0).num_check_cells(), 0);
}

TEST_F(ValueCheckTest, AnOpWithManyUnresolvedInputsWaitsForThem) {
  device(0).HoldFences();
  std::vector<Handle> inputs;
  for (Handle handle = 1; handle <= CheckList::kMaxChecks + 1; ++handle) {
    ASSERT_TRUE(Run("index", {kX, handle == 40 ? kBad : kGood}, handle).ok());
    inputs.push_back(handle);
  }
  ASSERT_TRUE(Run("concat", inputs, 100).ok());
  ASSERT_TRUE(device(0).WaitUntilFenceHeld());
  EXPECT_FALSE((*session_->Find(100))->done());
  ASSERT_TRUE(Eventually([&] {
    device(0).ReleaseFences();
    return (*session_->Find(100))->done();
  }));
  EXPECT_EQ(Outcome(100), absl::InvalidArgumentError(ErrorOf(40)));
}

TEST_F(ValueCheckTest, ADonatedInputIsGoneAndTheResultHoldsTheError) {
  device(0).HoldFences();
  const Handle inputs[] = {kX, kBad};
  const uint32_t donate[] = {0};
  ASSERT_TRUE(
      engine_->RunOp(session_, {.op = "index", .inputs = inputs, .output = 1, .donate = donate})
          .ok());
  device(0).ReleaseFences();
  Settle();
  EXPECT_EQ(Outcome(1), absl::InvalidArgumentError(ErrorOf(1)));
  ExpectError(Outcome(kX), Code::kNotFound);
}

TEST_F(ValueCheckTest, ChecksAreChargedWhileTheirTensorsExist) {
  const auto used_bytes = [&] { return principals_.host_budget()->used(); };
  // Handles are charged in blocks. The first round charges the block, so that later ones change
  // only what checks are charged.
  int64_t without = 0;
  for (int round = 0; round < 3; ++round) {
    ASSERT_TRUE(Run("index", {kX, kBad}, 1).ok());
    ASSERT_TRUE(Run("neg", {1}, 2).ok());
    Settle();
    if (round > 0) EXPECT_GE(used_bytes(), without + 512);
    ASSERT_TRUE(session_->Delete({1, 2}).ok());
    // The executor's thread drops the ops after it has reported that they are done.
    for (DeviceSlot* slot : engine_->slots()) slot->executor->Drain();
    if (round > 0) EXPECT_EQ(used_bytes(), without);
    without = used_bytes();
  }
}

class CheckedProgramTest : public ValueCheckTest {
 protected:
  explicit CheckedProgramTest(FakeDevice::Options first = kLate) : ValueCheckTest(first) {}

  // Prepares a program that computes y = -x[i], z = y[j], and then adds z to itself `adds` times,
  // with the inputs x, i, j, each of three elements. Its outputs are y and the last sum.
  std::shared_ptr<Program> Prepare(int adds) {
    const Attributes attrs;
    const TensorSpec spec{DType::kInt64, {3}};
    ProgramSpec program{{spec, spec, spec}, {}, {4, static_cast<uint32_t>(5 + adds)}};
    program.steps.push_back({"index", &attrs, {0, 1}});
    program.steps.push_back({"neg", &attrs, {3}});
    program.steps.push_back({"index", &attrs, {4, 2}});
    for (int i = 0; i < adds; ++i) {
      const auto last = static_cast<uint32_t>(5 + i);
      program.steps.push_back({"add", &attrs, {last, last}});
    }
    return *engine_->Prepare(*session_, program, "cpu:0");
  }

  absl::StatusOr<TensorRefs> RunProgram(const std::shared_ptr<Program>& program, Handle i, Handle j,
                                        Handle output) {
    const Handle inputs[] = {kX, i, j};
    const Handle outputs[] = {output, output + 1};
    return engine_->Run(session_, program, inputs, outputs);
  }

  static constexpr Handle kIdentity = 104, kOther = 105;
};

TEST_F(CheckedProgramTest, AllOutputsGetTheErrorThatNamesTheStep) {
  ASSERT_TRUE(Upload(kIdentity, {0, 1, 2}).ok());
  ASSERT_TRUE(Upload(kOther, {0, -5, 7}).ok());
  const auto program = Prepare(1);
  ASSERT_TRUE(RunProgram(program, kIdentity, kIdentity, 1).ok());
  ASSERT_TRUE(RunProgram(program, kIdentity, kBad, 3).ok());
  ASSERT_TRUE(RunProgram(program, kOther, kBad, 5).ok());
  EXPECT_THAT(*Read(1), ElementsAre(-10, -20, -30));
  EXPECT_THAT(*Read(2), ElementsAre(-20, -40, -60));
  for (Handle output : {3, 4}) {
    EXPECT_EQ(Read(output).status(),
              absl::InvalidArgumentError("program (tensor 3): index: index 3 at [1] of input 1 is "
                                         "out of range for axis 0 of size 3"));
  }
  for (Handle output : {5, 6}) {
    ExpectError(Read(output).status(), Code::kInvalidArgument,
                {"program (tensor 5): index: index -5 at [1]"});
  }
}

class EarlyCheckedProgramTest : public CheckedProgramTest {
 protected:
  EarlyCheckedProgramTest() : CheckedProgramTest(FakeDevice::Options{}) {}
};

TEST_F(EarlyCheckedProgramTest, ErrorIsThatOfADeviceThatReportsLater) {
  ASSERT_TRUE(Upload(kIdentity, {0, 1, 2}).ok());
  ASSERT_TRUE(RunProgram(Prepare(1), kIdentity, kBad, 3).ok());
  for (Handle output : {3, 4}) {
    EXPECT_EQ(Outcome(output),
              absl::InvalidArgumentError("program (tensor 3): index: index 3 at [1] of input 1 is "
                                         "out of range for axis 0 of size 3"));
  }
}

class CheckedGraphTest : public CheckedProgramTest {
 protected:
  CheckedGraphTest() : CheckedProgramTest(kLateWithGraphs) {}

  int64_t CountLaunched(absl::string_view op) {
    const std::vector<std::string> launched = device(0).launched();
    return std::count(launched.begin(), launched.end(), op);
  }
};

TEST_F(CheckedGraphTest, EachRunHasItsOwnError) {
  ASSERT_TRUE(Upload(kIdentity, {0, 1, 2}).ok());
  ASSERT_TRUE(Upload(kOther, {0, -5, 7}).ok());
  const auto program = Prepare(20);
  for (Handle output : {1, 3, 5}) {
    ASSERT_TRUE(RunProgram(program, kIdentity, kIdentity, output).ok());
    ASSERT_TRUE(Read(output).ok());
  }
  ASSERT_GT(CountLaunched("graph"), 0);
  device(0).HoldFences();
  const int64_t graphs = CountLaunched("graph");
  // The runs are all enqueued before the first one is looked at.
  ASSERT_TRUE(RunProgram(program, kIdentity, kBad, 11).ok());
  ASSERT_TRUE(RunProgram(program, kIdentity, kIdentity, 13).ok());
  ASSERT_TRUE(RunProgram(program, kOther, kBad, 15).ok());
  ASSERT_TRUE(RunProgram(program, kIdentity, kIdentity, 17).ok());
  ASSERT_TRUE(Eventually([&] { return (*session_->Find(18))->done(); }));
  EXPECT_GT(CountLaunched("graph"), graphs);
  device(0).ReleaseFences();
  for (Handle output : {11, 12}) {
    ExpectError(Read(output).status(), Code::kInvalidArgument,
                {"program (tensor 11): index: index 3 at [1]"});
  }
  for (Handle output : {15, 16}) {
    ExpectError(Read(output).status(), Code::kInvalidArgument,
                {"program (tensor 15): index: index -5 at [1]"});
  }
  for (Handle output : {13, 17}) EXPECT_THAT(*Read(output), ElementsAre(-10, -20, -30));
  EXPECT_EQ(device(0).num_check_cells(), 0);
}

}  // namespace
}  // namespace tensord::server
