// Compares fused chains of elementwise ops on the CPU device with the same ops run one by one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tensord/server/device/cpu/cpu_device.h"
#include "tensord/server/engine/engine.h"
#include "tensord/server/session/session_table.h"
#include "tensord/tests/unit/engine/fake_device.h"
#include "tensord/tests/unit/engine/read_tensor.h"
#include "tensord/tests/unit/session/test_principal.h"

namespace tensord::server {
namespace {

struct Link {
  std::string op;
  std::vector<Handle> inputs;  // 1 and 2 are given; the links' results have handles from 3 on
  Attributes attrs = {};
};

// Drains the executor and acquires its InlineLock. Retries, because the slice of the executor's
// last task may still be ending.
Executor::InlineLock AcquireInlineLock(Executor& executor) {
  executor.Drain();
  Executor::InlineLock lock;
  for (int i = 0; i < 100000 && !lock.held(); ++i) {
    std::this_thread::yield();
    lock = Executor::InlineLock(&executor);
  }
  return lock;
}

class FusionTest : public testing::TestWithParam<DType> {
 protected:
  struct Result {
    std::vector<uint8_t> bytes;
    int ran_alone = 0;  // the number of links whose result was computed
  };

  // Queues the links while the executor thread can't run. Drops all handles but the last one and
  // those in `kept`, so that the links can be fused when the executor thread continues.
  Result Run(bool fusion, int64_t n, const std::vector<Link>& links,
             const std::vector<Handle>& kept = {}) {
    return Run(fusion, {{n}, {n}}, links, kept);
  }
  Result Run(bool fusion, const std::vector<std::vector<int64_t>>& shapes,
             const std::vector<Link>& links, const std::vector<Handle>& kept = {}) {
    std::vector<std::unique_ptr<Device>> devices;
    devices.push_back(*MakeCpuDevice({DeviceKind::kCpu, 0}, int64_t{1} << 30, 2));
    Engine engine(std::move(devices), fusion);
    SessionTable sessions({}, engine.slots());
    SessionRef session = *sessions.Open(TestPrincipal(), kTestLeaseSeconds, "test");
    for (Handle handle : {1, 2}) {
      const Attributes attrs{{"shape", shapes[handle - 1]},
                             {"low", -1.0},
                             {"seed", static_cast<int64_t>(handle)},
                             {"dtype", GetParam()}};
      EXPECT_TRUE(engine.Run(session, {"uniform", {}, handle, attrs, "cpu:0"}).ok());
    }
    Result result;
    auto ran = std::make_shared<std::atomic<int>>(0);
    const Handle last = 2 + links.size();
    {
      Executor& executor = *engine.slots()[0]->executor;
      const Executor::InlineLock lock = AcquireInlineLock(executor);
      EXPECT_TRUE(lock.held());
      Handle output = 3;
      for (const Link& link : links) {
        // The op doesn't run inline, because this task is queued before it.
        executor.Post(session->lane(*engine.slots()[0]), [] {});
        const auto tensor = engine.Run(session, {link.op, link.inputs, output, link.attrs, ""});
        EXPECT_TRUE(tensor.ok()) << tensor.status();
        (*tensor)->WhenDone([ran] { ++*ran; });
        ++output;
      }
      for (Handle handle = 1; handle < last; ++handle) {
        if (std::find(kept.begin(), kept.end(), handle) == kept.end()) session->Drop({handle});
      }
    }
    result.bytes = *ReadTensor<uint8_t>(engine, *session->Find(last));
    engine.slots()[0]->executor->Drain();
    result.ran_alone = *ran;
    for (Handle handle : kept) {
      const std::vector<uint8_t> bytes = *ReadTensor<uint8_t>(engine, *session->Find(handle));
      result.bytes.insert(result.bytes.end(), bytes.begin(), bytes.end());
    }
    return result;
  }
};

const std::vector<Link>& Chain() {
  static const auto* const chain =
      new std::vector<Link>{{"mul", {1, 2}}, {"add", {3, 2}},     {"abs", {4}},  {"sqrt", {5}},
                            {"sub", {6, 1}}, {"maximum", {2, 7}}, {"relu", {8}}, {"neg", {9}}};
  return *chain;
}

TEST_P(FusionTest, ChainIsOneKernelWithTheSameBits) {
  for (int64_t n : {1, 7, 64, 5000, 300000}) {
    const Result fused = Run(true, n, Chain());
    const Result one_by_one = Run(false, n, Chain());
    EXPECT_EQ(fused.bytes, one_by_one.bytes) << n << " elements";
    EXPECT_EQ(fused.ran_alone, 1) << "the last one's result alone";
    EXPECT_EQ(one_by_one.ran_alone, 8);
  }
}

TEST_P(FusionTest, HeldIntermediatesAreComputed) {
  const Result fused = Run(true, 1000, Chain(), {2, 5});
  const Result one_by_one = Run(false, 1000, Chain(), {2, 5});
  EXPECT_EQ(fused.bytes, one_by_one.bytes);
  EXPECT_EQ(fused.ran_alone, 2);
}

TEST_P(FusionTest, ValuesWithTwoReadersAreComputed) {
  const std::vector<Link> links = {
      {"exp", {1}}, {"neg", {3}}, {"add", {3, 4}}, {"mul", {5, 5}}, {"exp", {6}}};
  const Result fused = Run(true, 1000, links);
  EXPECT_EQ(fused.bytes, Run(false, 1000, links).bytes);
}

TEST_P(FusionTest, ComparisonsAndChoicesFuseToo) {
  const std::vector<Link> links = {{"lt", {1, 2}}, {"where", {3, 1, 2}}, {"exp", {4}}};
  const Result fused = Run(true, 1000, links);
  EXPECT_EQ(fused.bytes, Run(false, 1000, links).bytes);
}

TEST_P(FusionTest, EveryElementwiseOpFuses) {
  for (const OpSchema* op : AllOps()) {
    if (!op->elementwise.has_value() || op->name == "cast" || op->name == "where") continue;
    const std::vector<TensorSpec> specs(op->min_inputs, {GetParam(), {2}});
    if (!PlanOp(op->name, specs, {}).ok()) continue;
    if (op->name == "conj") continue;  // an alias
    std::vector<Handle> inputs = {3};
    if (op->max_inputs == 2) inputs.push_back(2);
    const std::vector<Link> links = {{"abs", {1}}, {op->name, inputs}};
    const Result fused = Run(true, 1000, links);
    const Result one_by_one = Run(false, 1000, links);
    EXPECT_EQ(fused.bytes, one_by_one.bytes) << op->name;
    EXPECT_LT(fused.ran_alone, one_by_one.ran_alone) << op->name;
  }
}

TEST_P(FusionTest, LinearFusesItsActivation) {
  for (const UnaryFunction function : Activations()) {
    if (function == UnaryFunction::kGeluTanh) continue;  // gelu with an attribute
    const std::string activation(FunctionName(function));
    const std::vector<Link> links = {{"linear", {1, 2}}, {activation, {3}}};
    const Result fused = Run(true, {{8, 16}, {4, 16}}, links);
    const Result one_by_one = Run(false, {{8, 16}, {4, 16}}, links);
    EXPECT_EQ(fused.ran_alone, 1) << activation;
    EXPECT_EQ(fused.bytes.size(), one_by_one.bytes.size());
    // relu doesn't round. The other activations may differ in the last place.
    if (function == UnaryFunction::kRelu) {
      EXPECT_EQ(fused.bytes, one_by_one.bytes);
    }
  }
}

// The output of an op is dropped during WhenIdle(), so that the op may be skipped. WhenIdle() must
// still call back.
TEST(FusionIdleTest, WhenIdleCallsBackAfterADroppedOutput) {
  std::vector<std::unique_ptr<Device>> devices;
  devices.push_back(*MakeCpuDevice({DeviceKind::kCpu, 0}, int64_t{1} << 20, 1));
  Engine engine(std::move(devices), /*fusion=*/true, /*graphs=*/true,
                Executor::Threading::kCallerThread);
  SessionTable sessions({}, engine.slots());
  const SessionRef session = *sessions.Open(TestPrincipal(), kTestLeaseSeconds, "test");
  const Attributes attrs{{"shape", std::vector<int64_t>{4}}};
  ASSERT_TRUE(engine.Run(session, {"ones", {}, 1, attrs, "cpu:0"}).ok());
  Executor& executor = *engine.slots()[0]->executor;
  executor.Post(executor.NewLane(), [] {});  // later ops are queued behind this task
  ASSERT_TRUE(engine.Run(session, {"neg", std::vector<Handle>{1}, 2, {}, ""}).ok());
  ASSERT_TRUE(engine.Run(session, {"abs", std::vector<Handle>{2}, 3, {}, ""}).ok());
  bool idle = false;
  ASSERT_TRUE(engine.WhenIdle(session, [&idle] { idle = true; }).ok());
  session->Drop({2});
  executor.Drain();
  EXPECT_TRUE(idle);
}

INSTANTIATE_TEST_SUITE_P(DTypes, FusionTest,
                         testing::Values(DType::kFloat32, DType::kFloat64, DType::kFloat16,
                                         DType::kBFloat16),
                         [](const auto& info) { return std::string(DTypeName(info.param)); });

// An op isn't fused with a reader whose other input isn't ready.
TEST(FusionOrderTest, DoesNotFuseAReaderThatWaitsForAnUpload) {
  std::vector<std::unique_ptr<Device>> devices;
  devices.push_back(*MakeCpuDevice({DeviceKind::kCpu, 0}, int64_t{1} << 30, 2));
  Engine engine(std::move(devices));
  SessionTable sessions({}, engine.slots());
  SessionRef session = *sessions.Open(TestPrincipal(), kTestLeaseSeconds, "test");
  const TensorSpec spec{DType::kFloat32, {4}};
  ASSERT_TRUE(
      engine
          .Run(session,
               {"full", {}, 1, {{"shape", std::vector<int64_t>{4}}, {"value", 2.0}}, "cpu:0"})
          .ok());
  ASSERT_TRUE(engine.Promise(*session, 2, spec, "cpu:0").ok());
  {
    Executor& executor = *engine.slots()[0]->executor;
    const Executor::InlineLock lock = AcquireInlineLock(executor);
    executor.Post(session->lane(*engine.slots()[0]), [] {});
    ASSERT_TRUE(engine.Run(session, {"neg", {1}, 3, {}, ""}).ok());
    ASSERT_TRUE(engine.Run(session, {"mul", {3, 2}, 4, {}, ""}).ok());
    session->Drop({3});
  }
  engine.slots()[0]->executor->Drain();
  EXPECT_FALSE((*session->Find(4))->done());
  auto upload = engine.BeginUpload(*session, 2, spec, "cpu:0");
  ASSERT_TRUE(upload.ok());
  const std::vector<float> values = {1, 2, 3, 4};
  ASSERT_TRUE(upload->tensor->device().Write(*upload->buffer, 0, values.data(), 16).ok());
  ASSERT_TRUE(engine.FinishUpload(*session, *std::move(upload), absl::OkStatus()).ok());
  EXPECT_THAT(*ReadTensor<float>(engine, *session->Find(4)), testing::ElementsAre(-2, -4, -6, -8));
}

// A device that takes long to compile a kernel, like a GPU.
class SlowCompiler final : public FakeDevice {
 public:
  SlowCompiler() : FakeDevice(0, {.host_accessible = false}) {}

  absl::StatusOr<std::unique_ptr<PreparedKernel>> PrepareFused(const FusedSpec&) override {
    compiling.Set();
    may_end.Wait();
    return absl::UnimplementedError("compiles nothing");
  }

  const Event compiling, may_end;
};

TEST(FusionCompileTest, ChainRunsOpByOpWhileItsKernelIsCompiled) {
  auto owned = std::make_unique<SlowCompiler>();
  SlowCompiler& device = *owned;
  std::vector<std::unique_ptr<Device>> devices;
  devices.push_back(std::move(owned));
  Engine engine(std::move(devices));
  SessionTable sessions({}, engine.slots());
  const SessionRef session = *sessions.Open(TestPrincipal(), kTestLeaseSeconds, "test");
  EXPECT_EQ(engine.kernels_to_compile(), 0);
  device.Hold();
  const Attributes attrs{{"shape", std::vector<int64_t>{2}}, {"value", int64_t{3}}};
  EXPECT_TRUE(engine.Run(session, {"full", {}, 1, attrs, "cpu:0"}).ok());
  EXPECT_TRUE(engine.Run(session, {"neg", {1}, 2, {}, ""}).ok());
  EXPECT_TRUE(engine.Run(session, {"neg", {2}, 3, {}, ""}).ok());
  session->Drop({2});
  device.Release();
  EXPECT_THAT(*ReadTensor<int64_t>(engine, *session->Find(3)), testing::ElementsAre(3, 3));
  EXPECT_THAT(device.launched(), testing::ElementsAre("full", "neg", "neg"));
  EXPECT_TRUE(device.compiling.Wait());
  EXPECT_EQ(engine.kernels_to_compile(), 1);
  device.may_end.Set();
  EXPECT_TRUE(Eventually([&] { return engine.kernels_to_compile() == 0; }));
}

}  // namespace
}  // namespace tensord::server
