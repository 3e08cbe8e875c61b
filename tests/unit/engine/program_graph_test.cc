// Programs that run as graphs, on a fake device without a GPU: when they are captured, their
// results for changing inputs, and their memory.
#include <algorithm>
#include <atomic>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tensord/server/device/restartable_device.h"
#include "tensord/tests/unit/engine/engine_fixture.h"
#include "tensord/tests/unit/engine/read_tensor.h"

namespace tensord::server {
namespace {

using Code = absl::StatusCode;
using testing::Each;
using testing::ElementsAre;
using Words = std::vector<std::string>;

constexpr FakeDevice::Options kWithGraphs{
    .limit_bytes = 1 << 20, .host_accessible = false, .graphs = true};
constexpr int64_t kSmall = 16;           // a program holds values of this size itself
constexpr int64_t kLarge = 4096;         // 32 KiB: allocated by each run
constexpr int kRunsBeforeNextTry = 256;  // after the graph's memory was needed elsewhere

struct GraphOp {
  std::string name;
  std::vector<uint32_t> operands;
  Attributes attrs = {};
  uint32_t num_outputs = 1;
};

class ProgramGraphTest : public EngineFixture {
 protected:
  explicit ProgramGraphTest(FakeDevice::Options device = kWithGraphs, Limits limits = {})
      : EngineFixture(device, limits) {}

  using ProgramRef = std::shared_ptr<Program>;

  ProgramRef Prepare(const std::vector<TensorSpec>& inputs, const std::vector<GraphOp>& ops,
                     std::vector<uint32_t> outputs) {
    ProgramSpec spec{inputs, {}, std::move(outputs)};
    for (const GraphOp& op : ops) {
      spec.steps.push_back({.op = op.name,
                            .attrs = &op.attrs,
                            .operands = {op.operands.begin(), op.operands.end()},
                            .num_results = op.num_outputs});
    }
    auto program = engine_->Prepare(*session_, spec, "cpu:0");
    if (!program.ok()) throw std::runtime_error(std::string(program.status().message()));
    return *program;
  }

  // Prepares a program that computes x + 20 · w in twenty steps. x and w have `n` elements.
  ProgramRef PrepareTwentyAdds(int64_t n) {
    std::vector<GraphOp> ops;
    for (uint32_t i = 0; i < 20; ++i) ops.push_back({"add", {i == 0 ? 0 : i + 1, 1}});
    const TensorSpec spec{DType::kInt64, {n}};
    return Prepare({spec, spec}, ops, {21});
  }

  // Starts a run. Returns the handles of its outputs.
  std::vector<Handle> Start(const ProgramRef& program, const std::vector<Handle>& inputs) {
    std::vector<Handle> outputs;
    for (size_t i = 0; i < program->num_outputs(); ++i) outputs.push_back(++last_handle_);
    const auto started = engine_->Run(session_, program, inputs, outputs);
    EXPECT_TRUE(started.ok()) << started.status();
    return outputs;
  }

  Handle New(int64_t n, int64_t value) {
    const Handle handle = ++last_handle_;
    EXPECT_TRUE(Full(handle, n, value).ok());
    EXPECT_TRUE(Outcome(handle).ok());
    return handle;
  }

  // Runs the program on an input whose elements are all `x`. Expects that all elements of the
  // output are equal, and returns the first one. Doesn't drop the output.
  absl::StatusOr<int64_t> RunOn(const ProgramRef& program, int64_t n, int64_t x, Handle w) {
    const Handle input = New(n, x);
    absl::StatusOr<std::vector<int64_t>> values = Read(Start(program, {input, w})[0]);
    if (!values.ok()) return values.status();
    EXPECT_THAT(*values, Each((*values)[0]));
    return (*values)[0];
  }

  // Returns the ops that the device has launched since the last call.
  Words Launched() {
    const Words all = device(0).launched();
    Words since(all.begin() + static_cast<int64_t>(returned_), all.end());
    returned_ = all.size();
    return since;
  }
  int64_t Captures() {
    const Words all = device(0).launched();
    return std::count(all.begin(), all.end(), "capture");
  }

  Handle last_handle_ = 100;
  size_t returned_ = 0;
};

TEST_F(ProgramGraphTest, IsCapturedAtTheSecondRunAndLaunchedLater) {
  const ProgramRef program = PrepareTwentyAdds(kSmall);
  const Handle w = New(kSmall, 2);
  Launched();
  EXPECT_EQ(*RunOn(program, kSmall, 1, w), 41);
  EXPECT_EQ(Launched().size(), 21u);  // the ops of the program, and the input's
  EXPECT_EQ(*RunOn(program, kSmall, 2, w), 42);
  EXPECT_THAT(Launched(), ElementsAre("full", "capture", "copy", "graph", "copy"));
  for (int64_t x = 3; x < 30; ++x) {
    EXPECT_EQ(*RunOn(program, kSmall, x, w), 40 + x);
    EXPECT_THAT(Launched(), ElementsAre("full", "copy", "graph", "copy"));
  }
}

TEST_F(ProgramGraphTest, OutputsOfEarlierRunsStay) {
  const ProgramRef program = PrepareTwentyAdds(kSmall);
  const Handle w = New(kSmall, 1);
  std::vector<std::pair<Handle, int64_t>> results;
  Handle x = New(kSmall, 0);
  for (int64_t run = 1; run <= 10; ++run) {  // each run reads the last run's output
    x = Start(program, {x, w})[0];
    results.emplace_back(x, 20 * run);
  }
  for (const auto& [handle, value] : results) EXPECT_THAT(*Read(handle), Each(value));
  EXPECT_EQ(Captures(), 1);
}

TEST_F(ProgramGraphTest, ChangedInputIsCopiedAfterANewCapture) {
  const ProgramRef program = PrepareTwentyAdds(kSmall);
  const Handle w = New(kSmall, 2);
  for (int64_t x = 0; x < 5; ++x) EXPECT_EQ(*RunOn(program, kSmall, x, w), 40 + x);
  EXPECT_EQ(Captures(), 1);
  const Handle other_w = New(kSmall, 3);
  Launched();
  EXPECT_EQ(*RunOn(program, kSmall, 1, other_w), 61);
  EXPECT_THAT(Launched(), ElementsAre("full", "capture", "copy", "copy", "graph", "copy"));
  EXPECT_EQ(*RunOn(program, kSmall, 1, w), 41);
  EXPECT_EQ(*RunOn(program, kSmall, 2, other_w), 62);
  EXPECT_EQ(Captures(), 2);
}

TEST_F(ProgramGraphTest, RunsOpByOpAfterAFailedCapture) {
  const ProgramRef program = PrepareTwentyAdds(kSmall);
  const Handle w = New(kSmall, 2);
  device(0).FailNext("capture", absl::InternalError("not permitted when the stream is capturing"));
  testing::internal::CaptureStderr();
  for (int64_t x = 0; x < 6; ++x) EXPECT_EQ(*RunOn(program, kSmall, x, w), 40 + x);
  EXPECT_EQ(Captures(), 1);
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_THAT(log, testing::HasSubstr("a program of 20 steps on cpu:0 runs step by step"));
  EXPECT_EQ(std::count(log.begin(), log.end(), '\n'), 1);
}

TEST_F(ProgramGraphTest, RunWhoseGraphLaunchFailsRunsOpByOp) {
  const ProgramRef program = PrepareTwentyAdds(kSmall);
  const Handle w = New(kSmall, 2);
  for (int64_t x = 0; x < 3; ++x) EXPECT_EQ(*RunOn(program, kSmall, x, w), 40 + x);
  device(0).FailNext("graph", absl::InternalError("no"));
  EXPECT_EQ(*RunOn(program, kSmall, 7, w), 47);
  EXPECT_EQ(*RunOn(program, kSmall, 8, w), 48);
  EXPECT_EQ(Captures(), 1);
}

TEST_F(ProgramGraphTest, MemoryIsCountedAndFreedWithTheProgram) {
  const int64_t before = UsedBytes(0);
  ProgramRef program = PrepareTwentyAdds(kLarge);
  const Handle w = New(kLarge, 1), x = New(kLarge, 0), other_x = New(kLarge, 1);
  const int64_t with_inputs = UsedBytes(0);
  for (Handle input : {x, other_x, x}) {
    const Handle output = Start(program, {input, w})[0];
    EXPECT_TRUE(Outcome(output).ok());
    session_->Drop({output});
  }
  EXPECT_EQ(Captures(), 1);
  Settle();
  // The program holds the input's copy and two values that it uses alternately, not twenty.
  const int64_t held = 3 * kLarge * 8 + FakeDevice::kGraphBytes;
  EXPECT_TRUE(Eventually([&] { return UsedBytes(0) == with_inputs + held; })) << UsedBytes(0);
  EXPECT_EQ(session_->account(*engine_->slots()[0]).used_bytes(), UsedBytes(0));
  program.reset();
  EXPECT_TRUE(Eventually([&] { return UsedBytes(0) == with_inputs; }));
  session_->Drop({w, x, other_x});
  EXPECT_EQ(UsedBytes(0), before);
}

// Each launch of a graph writes the values within the compositions, so they stay allocated.
TEST_F(ProgramGraphTest, KeepsTheValuesWithinCompositions) {
  constexpr int kOps = 16;
  std::vector<GraphOp> ops;
  for (uint32_t i = 0; i < kOps; ++i) ops.push_back({"hardtanh", {i}});  // maximum, minimum
  ProgramRef program = Prepare({{DType::kInt64, {kLarge}}}, ops, {kOps});
  const Handle x = New(kLarge, 0);
  const int64_t with_input = UsedBytes(0);
  for (int run = 0; run < 3; ++run) {
    const Handle output = Start(program, {x})[0];
    EXPECT_TRUE(Outcome(output).ok());
    session_->Drop({output});
  }
  EXPECT_EQ(Captures(), 1);
  Settle();
  EXPECT_GE(UsedBytes(0) - with_input, kOps * kLarge * 8);
  program.reset();
  EXPECT_TRUE(Eventually([&] { return UsedBytes(0) == with_input; }));
}

// The rounds of a loop are kernels of the graph. The driver keeps memory for each of them, so there
// is a limit.
TEST_F(ProgramGraphTest, ALoopOfFewRoundsIsCaptured) {
  const auto captures_of = [&](int64_t steps) {
    const std::vector<TensorSpec> specs = {
        {DType::kFloat64, {steps, 1, 1}}, {DType::kFloat64, {1, 1}}, {DType::kFloat64, {1, 1}}};
    std::vector<Handle> inputs;
    for (const TensorSpec& spec : specs) {
      const auto dims = spec.shape.dims();
      inputs.push_back(++last_handle_);
      const auto made = engine_->Run(
          session_, {.op = "full",
                     .inputs = {},
                     .output = inputs.back(),
                     .attrs = {{"shape", std::vector<int64_t>(dims.begin(), dims.end())},
                               {"value", 0.5},
                               {"dtype", spec.dtype}},
                     .device = "cpu:0"});
      EXPECT_TRUE(made.ok()) << made.status();
    }
    const ProgramRef program = Prepare(specs, {{"rnn_layer", {0, 1, 2, 2}, {}, 2}}, {3});
    const int64_t before = Captures();
    for (int run = 0; run < 3; ++run) {
      const Handle output = Start(program, inputs)[0];
      EXPECT_TRUE(Outcome(output).ok());
      session_->Drop({output});
    }
    return Captures() - before;
  };
  EXPECT_EQ(captures_of(16), 1);
  EXPECT_EQ(captures_of(5000), 0);
}

TEST_F(ProgramGraphTest, MemoryIsFreedForOtherAllocations) {
  const ProgramRef program = PrepareTwentyAdds(kLarge);
  const Handle w = New(kLarge, 1), x = New(kLarge, 0), other_x = New(kLarge, 1);
  const int64_t with_inputs = UsedBytes(0);
  for (Handle input : {x, other_x}) session_->Drop(Start(program, {input, w}));
  Settle();
  ASSERT_GT(UsedBytes(0), with_inputs);
  // Allocates all memory that tensors don't hold.
  const Handle all = New((kWithGraphs.limit_bytes - with_inputs) / 8, 0);
  EXPECT_EQ(UsedBytes(0), kWithGraphs.limit_bytes);
  session_->Drop({all});
  for (int run = 0; run <= kRunsBeforeNextTry + 1; ++run) {
    const Handle output = Start(program, {run % 2 == 0 ? x : other_x, w})[0];
    EXPECT_THAT(*Read(output), Each(20 + run % 2));
    EXPECT_EQ(Captures(), run < kRunsBeforeNextTry ? 1 : 2) << run;
    session_->Drop({output});
  }
}

TEST_F(ProgramGraphTest, MemoryIsTakenByUploadsDuringRuns) {
  const ProgramRef program = PrepareTwentyAdds(kLarge);
  const Handle w = New(kLarge, 1), x = New(kLarge, 0), other_x = New(kLarge, 1);
  // The uploads leave memory for a run, but not for a graph as well.
  const std::vector<int64_t> upload(24 * kLarge, 9);
  std::atomic<bool> stop{false};
  std::thread uploader([&] {
    for (Handle handle = 1'000'000; !stop.load(); ++handle) {
      if (Upload(handle, upload).ok()) session_->Drop({handle});
    }
  });
  for (int run = 0; run < kRunsBeforeNextTry + 50; ++run) {
    const Handle output = Start(program, {run % 2 == 0 ? x : other_x, w})[0];
    EXPECT_THAT(*Read(output), Each(20 + run % 2));
    session_->Drop({output});
  }
  stop = true;
  uploader.join();
  EXPECT_GE(Captures(), 1);
}

constexpr Limits kQuota{.max_bytes_per_session = 300'000};

class ProgramGraphQuotaTest : public ProgramGraphTest {
 protected:
  ProgramGraphQuotaTest() : ProgramGraphTest(kWithGraphs, kQuota) {}
};

TEST_F(ProgramGraphQuotaTest, GraphNeverPreventsAnAllocationOfTheSession) {
  const ProgramRef program = PrepareTwentyAdds(kLarge);
  const Handle w = New(kLarge, 1), x = New(kLarge, 0), other_x = New(kLarge, 1);
  for (Handle input : {x, other_x}) session_->Drop(Start(program, {input, w}));
  Settle();
  EXPECT_EQ(Captures(), 1);
  const int64_t held = 3 * kLarge * 8;
  const Handle rest = New((kQuota.max_bytes_per_session - held) / 8, 5);
  session_->Drop({rest});
  // This leaves memory for a run, but not for a graph.
  const Handle ballast = New((kQuota.max_bytes_per_session - held) / 8 - 4 * kLarge, 5);
  for (int run = 0; run < 2 * kRunsBeforeNextTry; ++run) {
    const Handle output = Start(program, {run % 2 == 0 ? x : other_x, w})[0];
    EXPECT_TRUE(Outcome(output).ok());
    session_->Drop({output});
  }
  EXPECT_THAT(*Read(ballast), Each(5));
}

TEST_F(ProgramGraphTest, OutputsMayBeInputsConstantsOrEachOther) {
  const std::vector<int64_t> numbers(kSmall, 3);
  const std::string bytes(reinterpret_cast<const char*>(numbers.data()), kSmall * 8);
  const TensorSpec spec{DType::kInt64, {kSmall}};
  const Attributes constant{
      {"data", Bytes{bytes}}, {"shape", std::vector<int64_t>{kSmall}}, {"dtype", DType::kInt64}};
  std::vector<GraphOp> ops = {{"constant", {}, constant},
                              {"reshape", {0}, {{"shape", std::vector<int64_t>{1, kSmall}}}}};
  for (uint32_t i = 0; i < 30; ++i) ops.push_back({"add", {i == 0 ? 0 : i + 2, 1}});
  ops.push_back({"reshape", {32}, {{"shape", std::vector<int64_t>{kSmall, 1}}}});
  const ProgramRef program = Prepare({spec}, ops, {32, 0, 1, 33, 2, 32, 17});
  for (int64_t x = 0; x < 5; ++x) {
    const std::vector<Handle> outputs = Start(program, {New(kSmall, x)});
    EXPECT_THAT(*Read(outputs[0]), Each(x + 90));
    EXPECT_THAT(*Read(outputs[1]), Each(x));
    EXPECT_THAT(*Read(outputs[2]), Each(3));
    EXPECT_THAT(*Read(outputs[3]), Each(x + 90));
    EXPECT_THAT(*Read(outputs[4]), Each(x));
    EXPECT_THAT(*Read(outputs[5]), Each(x + 90));
    EXPECT_THAT(*Read(outputs[6]), Each(x + 45));
  }
  EXPECT_EQ(Captures(), 1);
}

TEST_F(ProgramGraphTest, CastsHaveTheirOwnMemory) {
  const TensorSpec narrow{DType::kInt32, {kSmall}}, wide{DType::kInt64, {kSmall}};
  std::vector<GraphOp> ops = {{"neg", {0}}};
  for (uint32_t i = 0; i < 20; ++i) ops.push_back({"add", {i == 0 ? 1 : i + 2, 2}});
  const ProgramRef program = Prepare({narrow, wide}, ops, {22});
  const Handle w = New(kSmall, 1000);
  for (int64_t x = 1; x < 6; ++x) {
    const Handle input = ++last_handle_;
    ASSERT_TRUE(
        Run("full", {}, input,
            {{"shape", std::vector<int64_t>{kSmall}}, {"value", x}, {"dtype", DType::kInt32}},
            "cpu:0")
            .ok());
    EXPECT_THAT(*Read(Start(program, {input, w})[0]), Each(1000 - 20 * x));
  }
  EXPECT_EQ(Captures(), 1);
}

TEST_F(ProgramGraphTest, ShortProgramsRunOpByOp) {
  const TensorSpec small{DType::kInt64, {kSmall}};
  const ProgramRef short_program =
      Prepare({small}, {{"neg", {0}}, {"neg", {1}}, {"neg", {2}}}, {3});
  const Handle x = New(kSmall, 4);
  for (int run = 0; run < 4; ++run) EXPECT_THAT(*Read(Start(short_program, {x})[0]), Each(-4));
  EXPECT_EQ(Captures(), 0);
}

class ProgramGraphLargeTest : public ProgramGraphTest {
 protected:
  ProgramGraphLargeTest()
      : ProgramGraphTest({.limit_bytes = 128 << 20, .host_accessible = false, .graphs = true}) {}
};

TEST_F(ProgramGraphLargeTest, LargeInputsRunOpByOp) {
  constexpr int64_t kHuge = 1 << 20;
  std::vector<GraphOp> ops;
  for (uint32_t i = 0; i < 7; ++i) ops.push_back({"neg", {i}});
  for (const int64_t n : {kHuge, kSmall}) {
    const ProgramRef program = Prepare({{DType::kInt64, {n}}}, ops, {7});
    const Handle x = New(n, 4);
    for (int run = 0; run < 2; ++run) {
      const Handle output = Start(program, {x})[0];
      EXPECT_THAT(*Read(output), Each(-4));
      session_->Drop({output});
    }
    EXPECT_EQ(Captures(), n == kHuge ? 0 : 1);
  }
}

TEST(ProgramGraphOffTest, CapturesNothingIfGraphsAreOff) {
  std::vector<std::unique_ptr<Device>> devices;
  auto owned = std::make_unique<FakeDevice>(0, kWithGraphs);
  FakeDevice& device = *owned;
  devices.push_back(std::move(owned));
  Engine engine(std::move(devices), /*fusion=*/true, /*graphs=*/false);
  SessionTable sessions({}, engine.slots());
  const SessionRef session = *sessions.Open(TestPrincipal(), kTestLeaseSeconds, "test");
  const Attributes attrs;
  ProgramSpec spec{{{DType::kInt64, {kSmall}}}, {}, {20}};
  for (uint32_t i = 0; i < 20; ++i) spec.steps.push_back({"neg", &attrs, {i}});
  const auto program = engine.Prepare(*session, spec, "cpu:0");
  ASSERT_TRUE(program.ok()) << program.status();
  ASSERT_TRUE(
      engine
          .Run(session, {.op = "full",
                         .output = 1,
                         .attrs = {{"shape", std::vector<int64_t>{kSmall}}, {"value", int64_t{7}}},
                         .device = "cpu:0"})
          .ok());
  for (Handle output = 2; output < 6; ++output) {
    const auto outputs = engine.Run(session, *program, {1}, {output});
    ASSERT_TRUE(outputs.ok()) << outputs.status();
    EXPECT_THAT(*ReadTensor<int64_t>(engine, (*outputs)[0]), Each(7));
  }
  const Words launched = device.launched();
  EXPECT_EQ(std::count(launched.begin(), launched.end(), "capture"), 0);
  EXPECT_EQ(launched.size(), 81u);
}

// An engine over one device that restarts. life_ is the current backend device.
class ProgramGraphFaultTest : public testing::Test {
 protected:
  ProgramGraphFaultTest() {
    std::vector<std::unique_ptr<Device>> devices;
    devices.push_back(
        *RestartableDevice::Create({[this]() -> absl::StatusOr<std::unique_ptr<Device>> {
          auto device = std::make_unique<FakeDevice>(0, kWithGraphs);
          life_ = device.get();
          return device;
        }}));
    engine_ = std::make_unique<Engine>(std::move(devices));
    sessions_ = std::make_unique<SessionTable>(Limits(), engine_->slots());
    session_ = *sessions_->Open(TestPrincipal(), kTestLeaseSeconds, "test");
    engine_->SetDeviceListener([this](DeviceSlot&, DeviceEvent event) {
      back_.fetch_add(event == DeviceEvent::kServing ? 1 : 0);
    });
  }
  ~ProgramGraphFaultTest() override {
    engine_->SetDeviceListener(nullptr);
    session_.reset();
    sessions_.reset();
    engine_.reset();
  }

  void Full(Handle output, int64_t value) {
    ASSERT_TRUE(
        engine_
            ->Run(session_, {.op = "full",
                             .output = output,
                             .attrs = {{"shape", std::vector<int64_t>{kSmall}}, {"value", value}},
                             .device = "cpu:0"})
            .ok());
  }
  absl::StatusOr<std::vector<int64_t>> RunAndRead(const std::shared_ptr<Program>& program,
                                                  Handle input) {
    const auto outputs = engine_->Run(session_, program, {input}, {++last_handle_});
    if (!outputs.ok()) return outputs.status();
    return ReadTensor<int64_t>(*engine_, (*outputs)[0]);
  }
  int64_t CapturesOfThisLife() {
    const Words all = life_.load()->launched();
    return std::count(all.begin(), all.end(), "capture");
  }

  std::atomic<FakeDevice*> life_{nullptr};
  std::atomic<int> back_{0};
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<SessionTable> sessions_;
  SessionRef session_;
  Handle last_handle_ = 100;
};

TEST_F(ProgramGraphFaultTest, IsCapturedAgainAfterARestart) {
  const Attributes attrs;
  ProgramSpec spec{{{DType::kInt64, {kSmall}}}, {}, {21}};
  for (uint32_t i = 0; i < 21; ++i) spec.steps.push_back({"neg", &attrs, {i}});
  const auto program = engine_->Prepare(*session_, spec, "cpu:0");
  ASSERT_TRUE(program.ok()) << program.status();
  for (int round = 0; round < 3; ++round) {
    const Handle x = 10 + round;
    Full(x, round);
    for (int run = 0; run < 4; ++run) EXPECT_THAT(*RunAndRead(*program, x), Each(-round));
    EXPECT_EQ(CapturesOfThisLife(), 1);
    engine_->slots()[0]->device->restartable()->MarkLostByDomain(absl::DataLossError("it broke"));
    EXPECT_EQ(RunAndRead(*program, x).status().code(), Code::kDataLoss);
    ASSERT_TRUE(Eventually([&] { return back_.load() == round + 1; }));
  }
  session_->Drop({10, 11, 12});
}

}  // namespace
}  // namespace tensord::server
