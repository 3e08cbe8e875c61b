// The kernels of compositions: how many there are, and what a launch holds.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "tensord/server/device/cpu/cpu_device.h"
#include "tensord/server/engine/engine.h"
#include "tensord/server/session/session_table.h"
#include "tensord/tests/unit/engine/fake_device.h"
#include "tensord/tests/unit/engine/read_tensor.h"
#include "tensord/tests/unit/session/test_principal.h"

namespace tensord::server {
namespace {

using testing::Each;
using testing::ElementsAre;

// A device that prepares every fused kernel. A launch of one fills the result with the number of
// its steps that aren't numbers.
class FusingDevice final : public FakeDevice {
 public:
  explicit FusingDevice(bool host_accessible)
      : FakeDevice(0, {.host_accessible = host_accessible}) {}

  absl::StatusOr<std::unique_ptr<PreparedKernel>> PrepareFused(const FusedSpec& spec) override {
    if (!host_accessible()) may_compile.Wait();
    if (!compiles) return absl::UnimplementedError("compiles nothing");
    int64_t steps = 0;
    for (const FusedSpec::Step& step : spec.steps) steps += step.operands.empty() ? 0 : 1;
    return std::make_unique<Fused>(this, steps);
  }

  const Event may_compile;
  bool compiles = true;
  int fused_launches = 0;

 private:
  class Fused final : public PreparedKernel {
   public:
    Fused(FusingDevice* device, int64_t steps) : device_(device), steps_(steps) {}
    absl::Status Launch(const LaunchContext& /*context*/,
                        absl::Span<const Buffer* const> /*inputs*/,
                        absl::Span<Buffer* const> outputs) override {
      ++device_->fused_launches;
      auto* const to = static_cast<int64_t*>(outputs[0]->data());
      std::fill(to, to + outputs[0]->size_bytes() / 8, steps_);
      return absl::OkStatus();
    }

   private:
    FusingDevice* const device_;
    const int64_t steps_;
  };
};

class ComposedKernelTest : public testing::Test {
 protected:
  FusingDevice& Start(bool host_accessible) {
    auto owned = std::make_unique<FusingDevice>(host_accessible);
    FusingDevice& device = *owned;
    std::vector<std::unique_ptr<Device>> devices;
    devices.push_back(std::move(owned));
    Start(std::move(devices));
    return device;
  }
  void Start(std::vector<std::unique_ptr<Device>> devices, bool fusion = true) {
    session_ = nullptr;
    sessions_ = nullptr;
    engine_ = std::make_unique<Engine>(std::move(devices), fusion);
    sessions_ = std::make_unique<SessionTable>(Limits{}, engine_->slots());
    session_ = *sessions_->Open(TestPrincipal(), kTestLeaseSeconds, "test");
  }
  ~ComposedKernelTest() override {
    session_ = nullptr;
    sessions_ = nullptr;
  }

  // Makes a tensor of int64[3].
  void Full(Handle handle, int64_t value) {
    Run("full", {}, handle, {{"shape", std::vector<int64_t>{3}}, {"value", value}}, "cpu:0");
  }
  void Run(const std::string& op, const std::vector<Handle>& inputs, Handle output,
           const Attributes& attrs = {}, const std::string& device = "") {
    const auto made = engine_->Run(session_, {op, inputs, output, attrs, device});
    ASSERT_TRUE(made.ok()) << made.status();
  }
  std::vector<int64_t> Read(Handle handle) {
    return *ReadTensor<int64_t>(*engine_, *session_->Find(handle));
  }

  std::unique_ptr<Engine> engine_;
  std::unique_ptr<SessionTable> sessions_;
  SessionRef session_;
};

TEST_F(ComposedKernelTest, ElementwiseOpsAreOneKernel) {
  FusingDevice& device = Start(/*host_accessible=*/true);
  Full(1, 5);
  Full(2, 6);
  Run("hardtanh_backward", {1, 2}, 3);  // gt, lt, bitwise_and, where
  EXPECT_THAT(Read(3), Each(4));
  EXPECT_EQ(device.fused_launches, 1);
  EXPECT_THAT(device.launched(), ElementsAre("full", "full"));
}

// lerp computes 1 - weight for one element, and the rest for all.
TEST_F(ComposedKernelTest, OpsOnOneElementArePartOfTheKernel) {
  FusingDevice& device = Start(/*host_accessible=*/true);
  const Attributes half{{"value", 0.5}, {"dtype", DType::kFloat64}};
  Attributes many = half;
  many.Set("shape", std::vector<int64_t>{3});
  Attributes one = half;
  one.Set("shape", std::vector<int64_t>{});
  Run("full", {}, 1, many, "cpu:0");
  Run("full", {}, 2, many, "cpu:0");
  Run("full", {}, 3, one, "cpu:0");
  Run("lerp", {1, 2, 3}, 4);
  EXPECT_THAT(Read(4), Each(9));
  EXPECT_EQ(device.fused_launches, 1);
  EXPECT_THAT(device.launched(), ElementsAre("full", "full", "full"));
}

TEST_F(ComposedKernelTest, ACompositionOfOneOpIsThatOp) {
  FusingDevice& device = Start(/*host_accessible=*/true);
  Full(1, 5);
  Run("square", {1}, 2);
  Read(2);
  EXPECT_EQ(device.fused_launches, 0);
  EXPECT_THAT(device.launched(), ElementsAre("full", "mul"));
}

TEST_F(ComposedKernelTest, ACompositionOfAliasesIsOne) {
  FusingDevice& device = Start(/*host_accessible=*/true);
  Full(1, 5);
  Run("pad", {1}, 2, {{"pad", std::vector<int64_t>{0, 0}}});
  EXPECT_THAT(Read(2), Each(5));
  EXPECT_EQ((*session_->Find(2))->buffer(), (*session_->Find(1))->buffer());
  EXPECT_THAT(device.launched(), ElementsAre("full"));
}

// mul, maximum and minimum of clamp, and add.
TEST_F(ComposedKernelTest, OpsBeforeAndAfterACompositionArePartOfItsKernel) {
  FusingDevice& device = Start(/*host_accessible=*/true);
  Full(1, 5);
  const TensorSpec x = {DType::kInt64, {3}};
  const Attributes none, limits{{"min", int64_t{0}}, {"max", int64_t{1}}};
  const ProgramSpec spec = {
      {x}, {{"mul", &none, {0, 0}}, {"hardtanh", &limits, {1}}, {"add", &none, {2, 0}}}, {3}};
  const auto program = engine_->Prepare(*session_, spec, "cpu:0");
  ASSERT_TRUE(program.ok()) << program.status();
  const Handle inputs[] = {1}, outputs[] = {2};
  ASSERT_TRUE(engine_->Run(session_, *program, inputs, outputs, {}).ok());
  EXPECT_THAT(Read(2), Each(4));
  EXPECT_EQ(device.fused_launches, 1);
  EXPECT_THAT(device.launched(), ElementsAre("full"));
}

TEST_F(ComposedKernelTest, RunsOpByOpUntilTheKernelIsCompiled) {
  FusingDevice& device = Start(/*host_accessible=*/false);
  Full(1, 5);
  Run("hardtanh", {1}, 2);
  Read(2);
  EXPECT_EQ(device.fused_launches, 0);
  EXPECT_THAT(device.launched(), ElementsAre("full", "full", "maximum", "full", "minimum"));
  device.may_compile.Set();
  ASSERT_TRUE(Eventually([&] { return engine_->kernels_to_compile() == 0; }));
  Run("hardtanh", {1}, 3);
  EXPECT_THAT(Read(3), Each(2));
  EXPECT_EQ(device.fused_launches, 1);
}

TEST_F(ComposedKernelTest, RunsOpByOpIfTheKernelCantBeCompiled) {
  FusingDevice& device = Start(/*host_accessible=*/false);
  device.compiles = false;
  device.may_compile.Set();
  Full(1, 5);
  for (Handle output = 2; output < 12; ++output) {
    Run("hardtanh", {1}, output);
    Read(output);
    ASSERT_TRUE(Eventually([&] { return engine_->kernels_to_compile() == 0; }));
  }
  EXPECT_EQ(device.fused_launches, 0);
  EXPECT_EQ(device.launched().size(), 1u + 10 * 4);
}

// Op by op, the intermediate values are allocated for the launch alone, and charged to its session.
TEST_F(ComposedKernelTest, IntermediateValuesAreFreedAndCharged) {
  std::vector<std::unique_ptr<Device>> devices;
  devices.push_back(*MakeCpuDevice({DeviceKind::kCpu, 0}, int64_t{1} << 30, 1));
  Start(std::move(devices), /*fusion=*/false);
  constexpr int64_t kBytes = 8 << 20;
  const Attributes attrs{{"shape", std::vector<int64_t>{kBytes / 4}}, {"seed", int64_t{1}}};
  Run("uniform", {}, 1, attrs, "cpu:0");
  Run("mish_backward", {1, 1}, 2);
  engine_->slots()[0]->executor->Drain();
  const MemoryStats stats = engine_->slots()[0]->device->memory();
  EXPECT_LE(stats.used_bytes, 2 * kBytes + (1 << 20));
  EXPECT_GE(stats.peak_bytes, 4 * kBytes);
  EXPECT_LE(stats.peak_bytes, 6 * kBytes + (1 << 20));
  EXPECT_GE(session_->account(*engine_->slots()[0]).used_bytes(), 2 * kBytes);
}

// The states of a loop that are kept are written where they are kept. The others have two buffers.
TEST_F(ComposedKernelTest, ALoopKeepsTheValuesThatItReturns) {
  std::vector<std::unique_ptr<Device>> devices;
  devices.push_back(*MakeCpuDevice({DeviceKind::kCpu, 0}, int64_t{1} << 30, 1));
  Start(std::move(devices));
  constexpr int64_t kSteps = 64, kRows = 256, kSize = 64, kBytes = kSteps * kRows * kSize * 4;
  const auto uniform = [&](Handle handle, std::vector<int64_t> shape) {
    Run("uniform", {}, handle, {{"shape", std::move(shape)}, {"seed", int64_t{1}}}, "cpu:0");
  };
  uniform(1, {kSteps, kRows, kSize});
  uniform(2, {kRows, kSize});
  uniform(3, {kSize, kSize});
  const auto run = [&](const char* op, const std::vector<Handle>& inputs, Handle output,
                       uint32_t num_outputs, const Attributes& attrs) {
    const auto made = engine_->RunOp(
        session_,
        {.op = op, .inputs = inputs, .output = output, .attrs = attrs, .num_outputs = num_outputs});
    ASSERT_TRUE(made.ok()) << made.status();
    engine_->slots()[0]->executor->Drain();
  };
  run("rnn_layer", {1, 2, 3, 3}, 4, 2, {});
  // x, the products of x, and the output.
  EXPECT_LE(engine_->slots()[0]->device->memory().peak_bytes, 3 * kBytes + (1 << 20));
  const auto all = *ReadTensor<float>(*engine_, *session_->Find(4));
  const auto last = *ReadTensor<float>(*engine_, *session_->Find(5));
  EXPECT_TRUE(std::equal(last.begin(), last.end(), all.end() - kRows * kSize));
  // Neither x nor h needs a gradient here, only the weight of h.
  Run("full", {}, 6, {{"shape", std::vector<int64_t>{}}, {"value", 1.0}}, "cpu:0");
  run("rnn_layer_backward", {6, 6, 1, 2, 3, 3, 4}, 7, 1, {{"gradients", std::vector<int64_t>{3}}});
  // x, the output, its gradient, that of the products, and the states before each step.
  EXPECT_LE(engine_->slots()[0]->device->memory().peak_bytes, 5 * kBytes + (1 << 20));
}

// The zeros are made in the memory of the result, and scatter updates them there.
TEST_F(ComposedKernelTest, AnIntermediateValueMayHaveTheMemoryOfTheResult) {
  std::vector<std::unique_ptr<Device>> devices;
  devices.push_back(*MakeCpuDevice({DeviceKind::kCpu, 0}, int64_t{1} << 30, 1));
  Start(std::move(devices));
  constexpr int64_t kRows = 64, kClasses = 32768, kBytes = kRows * kClasses * 4;
  Run("uniform", {}, 1, {{"shape", std::vector<int64_t>{kRows, kClasses}}, {"seed", int64_t{1}}},
      "cpu:0");
  Run("full", {}, 2, {{"shape", std::vector<int64_t>{kRows}}, {"value", int64_t{5}}}, "cpu:0");
  Run("ones", {}, 3, {{"shape", std::vector<int64_t>{}}}, "cpu:0");
  Run("nll_loss_backward", {3, 1, 2}, 4);
  engine_->slots()[0]->executor->Drain();
  EXPECT_LE(engine_->slots()[0]->device->memory().peak_bytes, 2 * kBytes + (1 << 20));
  const auto gradient = *ReadTensor<float>(*engine_, *session_->Find(4));
  EXPECT_EQ(std::count(gradient.begin(), gradient.end(), 0), kRows * kClasses - kRows);
  EXPECT_EQ(gradient[5], -1.0f / kRows);
}

}  // namespace
}  // namespace tensord::server
