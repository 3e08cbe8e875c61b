// Compares programs with fused ops on the CPU device with the same programs without fusion.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tensord/server/device/cpu/cpu_device.h"
#include "tensord/server/engine/engine.h"
#include "tensord/server/session/session_table.h"
#include "tensord/tests/unit/engine/fake_device.h"
#include "tensord/tests/unit/engine/read_tensor.h"
#include "tensord/tests/unit/session/test_principal.h"

namespace tensord::server {
namespace {

using testing::HasSubstr;
using ByteVector = std::vector<uint8_t>;

struct Op {
  std::string name;
  std::vector<uint32_t> operands;
  Attributes attrs = {};
};

struct Recorded {
  std::vector<TensorSpec> inputs;
  std::vector<Op> ops;
  std::vector<uint32_t> outputs;

  ProgramSpec Spec() const {
    ProgramSpec spec{inputs, {}, outputs};
    for (const Op& op : ops) {
      spec.steps.push_back({op.name, &op.attrs, {op.operands.begin(), op.operands.end()}});
    }
    return spec;
  }
};

// Runs programs on an engine with one CPU device. Every Runner makes the same inputs.
class Runner {
 public:
  explicit Runner(bool fusion)
      : engine_(Devices(), fusion),
        sessions_({}, engine_.slots()),
        session_(*sessions_.Open(TestPrincipal(), kTestLeaseSeconds, "test")) {}

  // Runs a program twice. Returns the bytes of its outputs. Sets `held_bytes` to the memory that
  // the program holds, and `peak_bytes` to the peak of used memory. Neither includes the inputs.
  std::vector<ByteVector> Run(const Recorded& recorded) {
    std::vector<Handle> inputs;
    for (const TensorSpec& spec : recorded.inputs) inputs.push_back(Uniform(spec));
    engine_.slots()[0]->executor->Drain();
    const int64_t before = Memory().used_bytes;
    const auto program = engine_.Prepare(*session_, recorded.Spec(), "cpu:0");
    EXPECT_TRUE(program.ok()) << program.status();
    if (!program.ok()) return {};
    held_bytes = Memory().used_bytes - before;
    std::vector<ByteVector> results;
    for (int run = 0; run < 2; ++run) {  // the second run reuses the memory of the first one
      std::vector<Handle> outputs;
      for (size_t i = 0; i < recorded.outputs.size(); ++i) outputs.push_back(++last_handle_);
      const auto tensors = engine_.Run(session_, *program, inputs, outputs);
      EXPECT_TRUE(tensors.ok()) << tensors.status();
      results.clear();
      for (const TensorRef& tensor : *tensors) results.push_back(Read(tensor));
      session_->Drop(outputs);
    }
    peak_bytes = Memory().peak_bytes - before;
    return results;
  }

  MemoryStats Memory() const { return engine_.slots()[0]->device->memory(); }

  int64_t held_bytes = 0;
  int64_t peak_bytes = 0;

 private:
  static std::vector<std::unique_ptr<Device>> Devices() {
    std::vector<std::unique_ptr<Device>> devices;
    devices.push_back(*MakeCpuDevice({DeviceKind::kCpu, 0}, int64_t{1} << 30, 2));
    return devices;
  }

  Handle Uniform(const TensorSpec& spec) {
    const Handle handle = ++last_handle_;
    const auto dims = spec.shape.dims();
    const Attributes attrs{{"shape", std::vector<int64_t>(dims.begin(), dims.end())},
                           {"low", -1.0},
                           {"seed", static_cast<int64_t>(handle)},
                           {"dtype", spec.dtype}};
    EXPECT_TRUE(engine_.Run(session_, {"uniform", {}, handle, attrs, "cpu:0"}).ok());
    return handle;
  }

  ByteVector Read(const TensorRef& tensor) {
    absl::StatusOr<ByteVector> bytes = ReadTensor<uint8_t>(engine_, tensor);
    EXPECT_TRUE(bytes.ok()) << bytes.status();
    return bytes.value_or(ByteVector());
  }

  Engine engine_;
  SessionTable sessions_;
  SessionRef session_;
  Handle last_handle_ = 0;
};

void ExpectTheSameBits(const Recorded& recorded) {
  EXPECT_EQ(Runner(true).Run(recorded), Runner(false).Run(recorded));
}

// Returns a program with inputs x and y. Its eight ops read each other's results, values 2 to 9.
Recorded EightOps(DType dtype, int64_t n, std::vector<uint32_t> outputs = {9}) {
  return {{{dtype, {n}}, {dtype, {n}}},
          {{"mul", {0, 1}},
           {"add", {2, 1}},
           {"abs", {3}},
           {"sqrt", {4}},
           {"sub", {5, 0}},
           {"maximum", {1, 6}},
           {"relu", {7}},
           {"neg", {8}}},
          std::move(outputs)};
}

// Returns a program that computes x + n · y by n additions.
Recorded Additions(int64_t elements, int n) {
  Recorded recorded{{{DType::kFloat32, {elements}}, {DType::kFloat32, {elements}}}, {}, {}};
  uint32_t last = 0;
  for (int i = 0; i < n; ++i) {
    recorded.ops.push_back({"add", {last, 1}});
    last = 2 + i;
  }
  recorded.outputs = {last};
  return recorded;
}

class ProgramFusionTest : public testing::TestWithParam<DType> {};

TEST_P(ProgramFusionTest, ChainGivesTheSameBits) {
  for (int64_t n : {1, 7, 64, 5000, 300000}) {
    SCOPED_TRACE(absl::StrCat(n, " elements"));
    ExpectTheSameBits(EightOps(GetParam(), n));
  }
}

TEST_P(ProgramFusionTest, IntermediateOutputsAreComputed) {
  for (int64_t n : {64, 5000}) {
    ExpectTheSameBits(EightOps(GetParam(), n, {9, 4, 2, 4, 0}));
    ExpectTheSameBits(EightOps(GetParam(), n, {8}));  // the last op has no reader
  }
}

TEST_P(ProgramFusionTest, ValuesWithTwoReadersAreComputed) {
  const TensorSpec spec{GetParam(), {5000}};
  // Two ops read exp, and each of them could be fused with it.
  ExpectTheSameBits({{spec}, {{"exp", {0}}, {"neg", {1}}, {"mul", {1, 0}}}, {2, 3}});
  // The square reads its one operand twice.
  ExpectTheSameBits({{spec},
                     {{"exp", {0}},
                      {"neg", {1}},
                      {"add", {1, 2}},
                      {"mul", {3, 3}},
                      {"exp", {4}},
                      {"add", {5, 1}}},
                     {6}});
}

// A chain may read values that are computed between its ops, even by another chain.
TEST_P(ProgramFusionTest, JoinedBranchesGiveTheSameBits) {
  const TensorSpec spec{GetParam(), {3000}};
  const std::vector<Op> ops = {{"neg", {0}},          {"exp", {1}},  {"mul", {2, 0}},
                               {"add", {3, 1}},       {"abs", {4}},  {"add", {5, 6}},
                               {"sub", {7, 0}},       {"relu", {8}}, {"sum", {9}},
                               {"maximum", {9, 10}},  {"exp", {11}}, {"lt", {12, 0}},
                               {"where", {13, 12, 1}}};
  ExpectTheSameBits({{spec, spec}, ops, {14}});
  ExpectTheSameBits({{spec, spec}, ops, {14, 8, 10}});
}

TEST_P(ProgramFusionTest, ChainsOfManyInputsAndOps) {
  Recorded recorded;
  for (int i = 0; i < 50; ++i) recorded.inputs.push_back({GetParam(), {1000}});
  uint32_t last = 0;
  for (uint32_t i = 1; i < 50; ++i) {
    recorded.ops.push_back({"lt", {last, i}});
    recorded.ops.push_back({"where", {48 + 2 * i, i, (i + 7) % 50}});
    last = 49 + 2 * i;
  }
  recorded.outputs = {last};
  ExpectTheSameBits(recorded);
}

TEST_P(ProgramFusionTest, BroadcastsAndCasts) {
  const DType other = GetParam() == DType::kFloat32 ? DType::kFloat64 : DType::kFloat32;
  ExpectTheSameBits({{{GetParam(), {40, 60}}, {GetParam(), {60}}, {GetParam(), {}}},
                     {{"mul", {1, 2}},  // its shape differs from that of the next op
                      {"add", {0, 3}},
                      {"sub", {4, 1}},
                      {"cast", {5}, {{"dtype", other}}},
                      {"tanh", {6}},
                      {"cast", {7}, {{"dtype", GetParam()}}},
                      {"reshape", {8}, {{"shape", std::vector<int64_t>{60, 40}}}},
                      {"neg", {9}}},
                     {10}});
}

TEST_P(ProgramFusionTest, LinearFusesItsActivation) {
  const TensorSpec x{GetParam(), {8, 16}}, weight{GetParam(), {4, 16}}, bias{GetParam(), {4}};
  for (const char* activation : {"relu", "tanh", "gelu", "silu", "sigmoid"}) {
    const Recorded apart{{x, weight, bias}, {{"linear", {0, 1, 2}}, {activation, {3}}}, {4}};
    const Recorded together{
        {x, weight, bias}, {{"linear", {0, 1, 2}, {{"activation", std::string(activation)}}}}, {3}};
    Runner fused(true), one_by_one(false);
    EXPECT_EQ(fused.Run(apart), one_by_one.Run(together)) << activation;
    EXPECT_EQ(fused.held_bytes, 0) << activation << ": linear's result needs no memory";
  }
}

TEST_P(ProgramFusionTest, LinearWithOtherReadersIsNotFused) {
  const TensorSpec x{GetParam(), {8, 16}}, weight{GetParam(), {4, 16}};
  const std::vector<Op> ops = {{"linear", {0, 1}}, {"tanh", {2}}, {"add", {2, 3}}};
  ExpectTheSameBits({{x, weight}, ops, {4}});
  ExpectTheSameBits({{x, weight}, {ops[0], ops[1]}, {3, 2}});
}

INSTANTIATE_TEST_SUITE_P(DTypes, ProgramFusionTest,
                         testing::Values(DType::kFloat32, DType::kFloat64, DType::kFloat16,
                                         DType::kBFloat16),
                         [](const auto& info) { return std::string(DTypeName(info.param)); });

TEST(ProgramMemoryTest, IntermediatesOfAChainTakeNoMemory) {
  constexpr int64_t kElements = 1 << 20, kBytes = kElements * 4;
  const Recorded chain = EightOps(DType::kFloat32, kElements);
  Runner fused(true), one_by_one(false);
  EXPECT_EQ(fused.Run(chain), one_by_one.Run(chain));
  EXPECT_EQ(fused.held_bytes, 0);
  EXPECT_EQ(fused.peak_bytes, kBytes) << "the output alone";
  EXPECT_EQ(one_by_one.peak_bytes, 2 * kBytes) << "an op's input and output";
  const Recorded with_middle = EightOps(DType::kFloat32, kElements, {9, 5});
  EXPECT_EQ(fused.Run(with_middle), one_by_one.Run(with_middle));
}

TEST(ProgramMemoryTest, AliasesDoNotKeepTheMemoryOfIntermediates) {
  constexpr int64_t kElements = 1 << 20, kBytes = kElements * 4;
  Recorded recorded = {{{DType::kFloat32, {kElements}}}, {}, {}};
  uint32_t value = 0;
  for (int i = 0; i < 6; ++i) {
    recorded.ops.push_back({"neg", {value}});
    recorded.ops.push_back(
        {"reshape", {value + 1}, {{"shape", std::vector<int64_t>{kElements / 2, 2}}}});
    recorded.ops.push_back({"reshape", {value + 2}, {{"shape", std::vector<int64_t>{kElements}}}});
    value += 3;
  }
  recorded.ops.push_back({"neg", {value}});
  recorded.outputs = {value + 1};
  Runner runner(/*fusion=*/false);
  runner.Run(recorded);
  EXPECT_EQ(runner.peak_bytes, 2 * kBytes) << "an op's input and output";
}

TEST(ProgramMemoryTest, SmallIntermediatesOfAChainTakeNoMemory) {
  Runner fused(true), one_by_one(false);
  const Recorded few = Additions(64, 20), many = Additions(64, 1000);
  EXPECT_EQ(fused.Run(few), one_by_one.Run(few));
  EXPECT_EQ(fused.held_bytes, 0);
  EXPECT_EQ(one_by_one.held_bytes, 2 * 64 * 4);
  // Several kernels compute this. Each one reads the result of the kernel before it.
  EXPECT_EQ(fused.Run(many), one_by_one.Run(many));
  EXPECT_LE(fused.held_bytes, 2 * 64 * 4);
}

// The ops of two chains alternate. Between them, the program keeps only the first chain's result.
TEST(ProgramMemoryTest, InterleavedChainsKeepOneValue) {
  const TensorSpec spec{DType::kFloat32, {64}};
  const Recorded recorded{{spec, spec},
                          {{"neg", {0}},     // 2
                           {"abs", {1}},     //   3
                           {"exp", {2}},     // 4
                           {"mul", {4, 0}},  // 5
                           {"add", {3, 5}},  //   6
                           {"relu", {6}}},   //   7
                          {7}};
  Runner fused(true), one_by_one(false);
  EXPECT_EQ(fused.Run(recorded), one_by_one.Run(recorded));
  EXPECT_EQ(fused.held_bytes, 64 * 4);
}

TEST(ProgramErrorTest, ErrorNamesTheOpWithAndWithoutFusion) {
  for (bool fusion : {true, false}) {
    std::vector<std::unique_ptr<Device>> devices;
    devices.push_back(*MakeCpuDevice({DeviceKind::kCpu, 0}, int64_t{1} << 30, 2));
    Engine engine(std::move(devices), fusion);
    SessionTable sessions({}, engine.slots());
    const SessionRef session = *sessions.Open(TestPrincipal(), kTestLeaseSeconds, "test");
    Recorded recorded = EightOps(DType::kFloat32, 64);
    recorded.ops[5] = {"matmul", {6, 7}};
    const auto program = engine.Prepare(*session, recorded.Spec(), "cpu:0");
    EXPECT_EQ(program.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(program.status().message()), HasSubstr("op 5 of a program: matmul"));
  }
}

// A device without fused kernels runs every op, in the order of the recording.
TEST(ProgramOrderTest, UnfusedOpsRunOneByOne) {
  std::vector<std::unique_ptr<Device>> devices;
  auto device = std::make_unique<FakeDevice>(0, FakeDevice::Options{});
  FakeDevice& fake = *device;
  devices.push_back(std::move(device));
  Engine engine(std::move(devices));
  SessionTable sessions({}, engine.slots());
  SessionRef session = *sessions.Open(TestPrincipal(), kTestLeaseSeconds, "test");
  const Attributes attrs{{"shape", std::vector<int64_t>{4}}, {"value", int64_t{3}}};
  ASSERT_TRUE(engine.Run(session, {"full", {}, 1, attrs, "cpu:0"}).ok());
  const TensorSpec four{DType::kInt64, {4}};
  const Recorded recorded{
      {four}, {{"neg", {0}}, {"add", {1, 0}}, {"neg", {2}}, {"add", {3, 0}}}, {4}};
  const auto program = engine.Prepare(*session, recorded.Spec(), "cpu:0");
  ASSERT_TRUE(program.ok()) << program.status();
  const Handle input = 1, output = 2;
  const auto results = engine.Run(session, *program, {&input, 1}, {&output, 1});
  ASSERT_TRUE(results.ok()) << results.status();
  EXPECT_THAT(*ReadTensor<int64_t>(engine, (*results)[0]), testing::Each(3));
  EXPECT_THAT(fake.launched(), testing::ElementsAre("full", "neg", "add", "neg", "add"));
}

}  // namespace
}  // namespace tensord::server
