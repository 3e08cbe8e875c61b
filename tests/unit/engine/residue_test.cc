// Reused memory is never read before it is written: the bits that one caller computes don't depend
// on data that another caller left in memory.
#include <stdlib.h>

#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "tensord/tests/unit/engine/engine_fixture.h"
#include "tensord/tests/unit/engine/read_tensor.h"
#include "tensord/tests/unit/engine/residue_devices.h"

namespace tensord::server {
namespace {

using Shape64 = std::vector<int64_t>;

class ResidueTest : public testing::Test {
 protected:
  void SetUp() override {
    std::vector<std::unique_ptr<Device>> devices = MakeResidueDevices();
    if (devices.empty()) GTEST_SKIP() << "there is no device of this kind";
    for (int i = 0; i < 2; ++i) names_[i] = devices[i]->info().name.ToString();
    engine_ = std::make_unique<Engine>(std::move(devices));
    sessions_ = std::make_unique<SessionTable>(Limits{}, engine_->slots());
  }

  // Acts as the first caller: fills blocks of all sizes that the cases use with `pattern`, and
  // frees them.
  void FillAndFree(uint8_t pattern, bool large) {
    const SessionRef session = *sessions_->Open(TestPrincipal("first"), kTestLeaseSeconds, "");
    Handle handle = 0;
    const auto fill = [&](int64_t bytes, const std::string& device) {
      const Attributes attrs{
          {"shape", Shape64{bytes}}, {"value", int64_t{pattern}}, {"dtype", DType::kUInt8}};
      ASSERT_TRUE(
          engine_
              ->Run(session, {.op = "full", .output = ++handle, .attrs = attrs, .device = device})
              .ok());
    };
    for (int64_t bytes = 1; bytes <= 4096; bytes += bytes < 512 ? 64 : 256) {
      for (int i = 0; i < 4; ++i) fill(bytes, names_[0]);
      fill(bytes, names_[1]);
    }
    if (large) {
      for (int64_t bytes : {100 << 10, 3 << 20}) {
        for (int i = 0; i < 4; ++i) fill(bytes, names_[0]);
        fill(bytes, names_[1]);
      }
    }
    Settle(session);
    ASSERT_TRUE(sessions_->Close(TestPrincipal("first"), session->id()).ok());
  }

  void Settle(const SessionRef& session) {
    Event idle;
    ASSERT_TRUE(engine_->WhenIdle(session, [idle] { idle.Set(); }).ok());
    ASSERT_TRUE(idle.Wait());
  }

  // Returns the bytes of a tensor. If it has an error, returns its message, and keeps it in errors_.
  std::string Read(const SessionRef& session, Handle handle) {
    const auto tensor = session->Find(handle);
    if (!tensor.ok()) return MessageOf(tensor.status());
    const auto bytes = ReadTensor<char>(*engine_, *tensor);
    if (!bytes.ok()) return MessageOf(bytes.status());
    return std::string(bytes->begin(), bytes->end());
  }

  std::string MessageOf(const absl::Status& error) {
    errors_.insert(std::string(error.message()));
    return std::string(error.message());
  }

  void Run(const SessionRef& session, absl::string_view op, std::vector<Handle> inputs,
           Handle output, Attributes attrs = {}) {
    const auto tensor = engine_->Run(session, {.op = op,
                                               .inputs = inputs,
                                               .output = output,
                                               .attrs = std::move(attrs),
                                               .device = names_[0]});
    ASSERT_TRUE(tensor.ok()) << op << ": " << tensor.status();
  }

  // Makes random tensors of these shapes under the handles 1, 2, …
  void Inputs(const SessionRef& session, const std::vector<Shape64>& shapes, DType dtype) {
    for (size_t i = 0; i < shapes.size(); ++i) {
      Run(session, "uniform", {}, 1000 + i,
          {{"shape", shapes[i]}, {"seed", static_cast<int64_t>(i)}, {"low", 1.0}, {"high", 9.0}});
      Run(session, "cast", {1000 + i}, 1 + i, {{"dtype", dtype}});
    }
  }

  // A case runs in a new session of the second caller. It returns the bytes that it reads.
  using Case = std::function<std::string(const SessionRef&)>;
  std::string Observe(const Case& run) {
    const SessionRef session = *sessions_->Open(TestPrincipal("second"), kTestLeaseSeconds, "");
    const std::string bytes = run(session);
    EXPECT_TRUE(sessions_->Close(TestPrincipal("second"), session->id()).ok());
    return bytes;
  }

  Case Op(absl::string_view op, std::vector<Shape64> shapes, Attributes attrs = {},
          DType dtype = DType::kFloat32) {
    return [this, op = std::string(op), shapes, attrs, dtype](const SessionRef& session) {
      Inputs(session, shapes, dtype);
      std::vector<Handle> inputs;
      for (size_t i = 0; i < shapes.size(); ++i) inputs.push_back(1 + i);
      Run(session, op, inputs, 500, attrs);
      return Read(session, 500);
    };
  }

  // Does the same for an op with several outputs. The dtype of input i is dtypes[i], if there is one,
  // and otherwise the last one.
  Case OpWithOutputs(absl::string_view op, std::vector<Shape64> shapes, Attributes attrs,
                     std::vector<DType> dtypes, int num_outputs) {
    return [this, op = std::string(op), shapes, attrs, dtypes,
            num_outputs](const SessionRef& session) {
      Inputs(session, shapes, dtypes.back());
      std::vector<Handle> inputs;
      for (size_t i = 0; i < shapes.size(); ++i) {
        inputs.push_back(1 + i);
        if (i + 1 < dtypes.size()) {
          Run(session, "cast", {1000 + i}, 2000 + i, {{"dtype", dtypes[i]}});
          inputs.back() = 2000 + i;
        }
      }
      const auto outputs =
          engine_->RunOp(session, {.op = op,
                                   .inputs = inputs,
                                   .output = 500,
                                   .attrs = attrs,
                                   .device = names_[0],
                                   .num_outputs = static_cast<uint32_t>(num_outputs)});
      EXPECT_TRUE(outputs.ok()) << op << ": " << outputs.status();
      std::string bytes;
      for (int i = 0; i < num_outputs; ++i) bytes += Read(session, 500 + i);
      return bytes;
    };
  }
  Case OpWithTwoOutputs(absl::string_view op, std::vector<Shape64> shapes, Attributes attrs,
                        DType dtype) {
    return OpWithOutputs(op, std::move(shapes), std::move(attrs), {dtype}, 2);
  }

  std::vector<Case> Ops();
  std::vector<Case> NetworkOps();
  std::vector<Case> OtherCases();

  std::string names_[2];
  std::set<std::string> errors_;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<SessionTable> sessions_;
};

// Every kind of kernel, also with shapes without elements.
std::vector<ResidueTest::Case> ResidueTest::Ops() {
  std::vector<Case> cases;
  for (DType dtype : {DType::kFloat32, DType::kFloat64, DType::kFloat16, DType::kInt32}) {
    for (const char* op : {"neg", "abs", "relu", "exp", "sqrt", "tanh"}) {
      cases.push_back(Op(op, {{37}}, {}, dtype));
    }
    for (const char* op : {"add", "div", "maximum", "lt"}) {
      cases.push_back(Op(op, {{5, 1, 7}, {3, 1}}, {}, dtype));
    }
    for (const char* op : {"sum", "norm", "argmax", "mean", "prod", "count_nonzero"}) {
      const bool floating = dtype != DType::kInt32;
      if (!floating && (op[0] == 'n' || op[0] == 'm')) continue;
      const Attributes rows{{"axes", Shape64{0}}};
      cases.push_back(Op(op, {{6, 11}}, rows, dtype));
    }
    for (const char* op : {"cumsum", "cumprod"}) {
      for (int64_t axis : {0, 1}) cases.push_back(Op(op, {{6, 11}}, {{"axis", axis}}, dtype));
    }
    if (dtype != DType::kInt32) {
      for (const Shape64& shape : {Shape64{6, 11}, Shape64{0, 11}}) {
        cases.push_back(OpWithTwoOutputs("var_mean", {shape}, {{"axes", Shape64{0}}}, dtype));
      }
    }
    cases.push_back(Op("sum", {{0, 11}}, {{"axes", Shape64{0}}}, dtype));
    cases.push_back(Op("matmul", {{7, 9}, {9, 5}}, {}, dtype));
    cases.push_back(Op("matmul", {{7, 0}, {0, 5}}, {}, dtype));
    cases.push_back(Op("matmul", {{2, 3, 17}, {17}}, {}, dtype));
    cases.push_back(Op("permute", {{3, 4, 5}}, {{"axes", Shape64{2, 0, 1}}}, dtype));
    cases.push_back(Op("concat", {{3, 4}, {0, 4}, {2, 4}}, {{"axis", int64_t{0}}}, dtype));
    for (const int64_t axis : {0, 1}) {
      cases.push_back(OpWithTwoOutputs("sort", {{30, 17}}, {{"axis", axis}}, dtype));
      cases.push_back(
          OpWithTwoOutputs("topk", {{30, 17}}, {{"axis", axis}, {"k", int64_t{3}}}, dtype));
    }
    cases.push_back(Op("searchsorted", {{9}, {5, 3}}, {}, dtype));
    cases.push_back(Op("nonzero", {{5, 7}}, {{"size", int64_t{50}}}, dtype));
    cases.push_back(Op("nonzero", {{0, 7}}, {{"size", int64_t{5}}}, dtype));
    cases.push_back(Op("broadcast_to", {{1, 4}}, {{"shape", Shape64{9, 4}}}, dtype));
    const Attributes view{
        {"shape", Shape64{4, 3}}, {"strides", Shape64{-2, 9}}, {"offset", int64_t{11}}};
    cases.push_back(Op("as_strided", {{40}}, view, dtype));
    cases.push_back(Op("as_strided_scatter", {{40}, {4, 3}}, view, dtype));
  }
  // The inputs are integers from 1 to 8, so they can be indices, too.
  const DType int32 = DType::kInt32;
  cases.push_back(Op("index", {{11, 4}, {5}}, {}, int32));
  cases.push_back(Op("index", {{11, 9}, {3, 1}, {4}}, {}, int32));
  cases.push_back(Op("gather", {{11, 4}, {7, 3}}, {}, int32));
  for (const char* reduce : {"none", "add"}) {
    const Attributes attrs{{"reduce", std::string(reduce)}};
    cases.push_back(Op("index_put", {{11, 4}, {5}, {5, 4}}, attrs, int32));
    cases.push_back(Op("index_put", {{11, 4}, {0}, {0, 4}}, attrs, int32));
    cases.push_back(Op("scatter", {{11, 4}, {5, 3}, {6, 3}}, attrs, int32));
  }
  cases.push_back(Op("mean", {{0, 11}}, {{"axes", Shape64{0}}}));
  cases.push_back(Op("norm", {{0, 11}}, {{"axes", Shape64{0}}}));
  cases.push_back(Op("linear", {{7, 9}, {5, 9}, {5}}, {{"activation", "relu"}}));
  cases.push_back(Op("linear", {{7, 0}, {5, 0}, {5}}));
  cases.push_back(Op("linear", {{7, 0}, {5, 0}}));
  cases.push_back(Op("softmax", {{7, 9}}, {{"axis", int64_t{1}}}));
  cases.push_back(Op("log_softmax", {{7, 9}}, {{"axis", int64_t{0}}}));
  cases.push_back(Op("cast", {{37}}, {{"dtype", DType::kBool}}));
  for (const char* op : {"zeros", "ones"}) cases.push_back(Op(op, {}, {{"shape", Shape64{41}}}));
  cases.push_back(Op("eye", {}, {{"rows", int64_t{7}}, {"cols", int64_t{5}}}));
  cases.push_back(Op("arange", {}, {{"start", 0.0}, {"stop", 37.0}, {"step", 1.0}}));
  for (const char* op : {"uniform", "normal"}) {
    cases.push_back(Op(op, {}, {{"shape", Shape64{33}}, {"seed", int64_t{3}}}));
  }
  cases.push_back(OpWithTwoOutputs("sort", {{40000}}, {}, DType::kFloat32));
  cases.push_back(OpWithTwoOutputs("topk", {{40000}}, {{"k", int64_t{50}}}, DType::kFloat32));
  cases.push_back(
      Op("randint", {}, {{"shape", Shape64{33}}, {"seed", int64_t{3}}, {"high", int64_t{9}}}));
  for (DType dtype : {DType::kFloat32, DType::kFloat16}) {
    cases.push_back(Op("dropout", {{37}}, {{"seed", int64_t{3}}}, dtype));
  }
  cases.push_back(Op("eye", {}, {{"rows", int64_t{7}}, {"k", int64_t{-2}}}));
  cases.push_back(Op("slice", {{37}},
                     {{"starts", Shape64{36}}, {"stops", Shape64{-38}}, {"steps", Shape64{-3}}}));
  cases.push_back(Op("matmul", {{160, 160}, {160, 160}}));
  cases.push_back(Op("exp", {{786432}}));
  return cases;
}

// The network ops. Inputs are numbers from 1 to 9.
std::vector<ResidueTest::Case> ResidueTest::NetworkOps() {
  std::vector<Case> cases;
  const DType int32 = DType::kInt32, float64 = DType::kFloat64;
  for (const DType dtype : {DType::kFloat32, DType::kFloat64, DType::kFloat16}) {
    const DType wide = dtype == float64 ? float64 : DType::kFloat32;
    for (const int64_t axis : {0, 1}) {
      for (const bool log : {false, true}) {
        cases.push_back(
            Op("softmax_backward", {{7, 33}, {7, 33}}, {{"axis", axis}, {"log", log}}, dtype));
      }
    }
    for (const Shape64& shape : {Shape64{70, 33}, Shape64{0, 33}, Shape64{3, 0}}) {
      // Each case has a result with elements.
      if (shape[0] > 0) {
        cases.push_back(
            OpWithOutputs("layer_norm", {shape, {shape[1]}, {shape[1]}}, {}, {dtype}, 3));
        cases.push_back(OpWithOutputs("layer_norm", {shape}, {{"center", false}}, {dtype}, 2));
      }
      if (shape[1] > 0) {
        cases.push_back(OpWithOutputs("layer_norm_backward",
                                      {shape, shape, {shape[0], 1}, {shape[0], 1}, {shape[1]}}, {},
                                      {dtype, dtype, wide, wide, dtype}, 3));
      }
    }
    for (const int64_t axis : {0, 1}) {
      const Attributes attrs = {{"axis", axis}, {"label_smoothing", 0.1}};
      const Shape64 rows = {axis == 0 ? 40 : 33};
      cases.push_back(OpWithOutputs("cross_entropy", {{33, 40}, rows}, attrs, {dtype, int32}, 2));
      cases.push_back(OpWithOutputs("cross_entropy_backward", {rows, {33, 40}, rows, rows}, attrs,
                                    {wide, dtype, wide, int32}, 1));
    }
    for (const Shape64& heads : {Shape64{2, 37, 20}, Shape64{4, 1, 33}}) {
      const Shape64 keys = {2, 41, heads[2]}, rows = {heads[0], heads[1]};
      const Shape64 mask = {heads[1], 41};
      cases.push_back(OpWithOutputs("sdpa", {heads, keys, keys, mask}, {}, {dtype}, 2));
      cases.push_back(OpWithOutputs("sdpa_backward", {heads, heads, keys, keys, heads, rows, mask},
                                    {{"mask_gradient", true}},
                                    {dtype, dtype, dtype, dtype, dtype, wide, dtype}, 4));
    }
    for (const Shape64& shape : {Shape64{5, 3, 70}, Shape64{9, 3}}) {
      const Attributes training = {{"training", true}};
      cases.push_back(
          OpWithOutputs("batch_norm", {shape, {3}, {3}, {3}, {3}}, training, {dtype}, 5));
      cases.push_back(OpWithOutputs("batch_norm", {shape, {3}, {3}}, {}, {dtype}, 1));
      cases.push_back(OpWithOutputs("batch_norm_backward", {shape, shape, {3}, {3}}, training,
                                    {dtype, dtype, wide}, 3));
    }
    // Layouts of oneDNN with padded channels, matrix products of windows, and a batch of no images.
    for (const Shape64& weight : {Shape64{5, 3, 3, 3}, Shape64{5, 3, 1, 1}}) {
      const Shape64 x = {2, 3, 9, 11}, y = {2, 5, 10 - weight[2], 12 - weight[3]};
      cases.push_back(Op("conv", {x, weight, {5}}, {{"activation", "relu"}}, dtype));
      cases.push_back(Op("conv_backward_input", {y, weight}, {{"shape", x}}, dtype));
      cases.push_back(Op("conv_backward_weight", {y, x}, {{"shape", weight}}, dtype));
    }
    cases.push_back(Op("conv", {{2, 6, 9}, {6, 1, 3}}, {{"groups", int64_t{6}}}, dtype));
    cases.push_back(
        Op("conv_backward_weight", {{0, 5, 7}, {0, 3, 9}}, {{"shape", Shape64{5, 3, 3}}}, dtype));
    const Attributes windows = {
        {"kernel", Shape64{3, 3}}, {"stride", Shape64{2, 2}}, {"padding", Shape64{1, 1}}};
    Attributes backward = windows;
    backward.Set("size", Shape64{9, 11});
    cases.push_back(OpWithOutputs("max_pool", {{2, 9, 11}}, windows, {dtype}, 2));
    cases.push_back(Op("avg_pool", {{2, 9, 11}}, windows, dtype));
    cases.push_back(OpWithOutputs("max_pool_backward", {{2, 5, 6}, {2, 5, 6}}, backward,
                                  {dtype, DType::kInt64}, 1));
    cases.push_back(Op("avg_pool_backward", {{2, 5, 6}}, backward, dtype));
    cases.push_back(OpWithOutputs("adam_step", {{37}, {37}, {37}, {37}, {}, {}}, {}, {dtype}, 3));
    cases.push_back(OpWithOutputs("adam_step", {{37}, {37}, {37}, {37}, {37}, {}, {}},
                                  {{"amsgrad", true}}, {dtype}, 4));
    cases.push_back(
        OpWithOutputs("lstm_layer", {{5, 3, 4}, {3, 7}, {3, 7}, {28, 4}, {28, 7}}, {}, {dtype}, 5));
    cases.push_back(OpWithOutputs("lstm_layer_backward",
                                  {{5, 3, 7},
                                   {3, 7},
                                   {3, 7},
                                   {5, 3, 4},
                                   {3, 7},
                                   {3, 7},
                                   {28, 4},
                                   {28, 7},
                                   {5, 3, 7},
                                   {5, 3, 7},
                                   {5, 3, 28}},
                                  {}, {dtype}, 7));
  }
  return cases;
}

// Other users of memory: chains of ops, programs, uploads and copies.
std::vector<ResidueTest::Case> ResidueTest::OtherCases() {
  std::vector<Case> cases;
  cases.push_back([this](const SessionRef& session) {
    Inputs(session, {{37}, {37}}, DType::kFloat32);
    const auto slot = engine_->slots()[0];
    Event begun, go;
    slot->executor->Post(slot->executor->NewLane(), [begun, go] {
      begun.Set();
      go.Wait();
    });
    begun.Wait();
    Run(session, "add", {1, 2}, 3);
    Run(session, "exp", {3}, 4);
    Run(session, "neg", {4}, 5);
    session->Drop({3, 4});
    go.Set();
    return Read(session, 5);
  });
  cases.push_back([this](const SessionRef& session) {
    Inputs(session, {{37}}, DType::kFloat32);
    const Attributes none;
    ProgramSpec spec{{{DType::kFloat32, {37}}}, {}, {2}};
    spec.steps.push_back({"exp", &none, {0}});
    spec.steps.push_back({"add", &none, {0, 1}});
    const auto program = engine_->Prepare(*session, spec, names_[0]);
    EXPECT_TRUE(program.ok()) << program.status();
    const Handle input = 1, output = 2;
    EXPECT_TRUE(engine_->Run(session, *program, {&input, 1}, {&output, 1}).ok());
    return Read(session, 2);
  });
  // An upload that fails after some bytes: neither these bytes nor those behind them can be read.
  cases.push_back([this](const SessionRef& session) {
    const TensorSpec spec{DType::kUInt8, {100}};
    EXPECT_TRUE(engine_->Promise(*session, 1, spec, names_[0]).ok());
    auto upload = engine_->BeginUpload(*session, 1, spec, names_[0]);
    EXPECT_TRUE(upload.ok()) << upload.status();
    EXPECT_TRUE(upload->tensor->device().Write(*upload->buffer, 0, "1234", 4).ok());
    EXPECT_FALSE(
        engine_->FinishUpload(*session, *std::move(upload), absl::AbortedError("cut")).ok());
    return Read(session, 1);
  });
  cases.push_back([this](const SessionRef& session) {
    Inputs(session, {{37}}, DType::kFloat32);
    EXPECT_TRUE(engine_->Copy(session, 1, 2, names_[1], false).ok());
    return Read(session, 2);
  });
  return cases;
}

// Checks that memory is reused. Otherwise the next test would prove nothing.
TEST_F(ResidueTest, MemoryIsReused) {
  FillAndFree(0xA5, true);
  Device& device = *engine_->slots()[0]->device;
  const BufferRef buffer = *device.Allocate(100 << 10);
  uint8_t byte = 0;
  ASSERT_TRUE(device.Read(*buffer, 50 << 10, &byte, 1).ok());
  EXPECT_EQ(byte, 0xA5);
}

TEST_F(ResidueTest, ResultsDoNotDependOnOldData) {
  const int cycles = getenv("TENSORD_TEST_LONG") != nullptr ? 10'000 : 300;
  std::vector<Case> cases = Ops();
  for (Case& op : NetworkOps()) cases.push_back(std::move(op));
  for (Case& other : OtherCases()) cases.push_back(std::move(other));
  ASSERT_GT(cases.size(), 50u);
  std::vector<std::string> first(cases.size());
  for (int cycle = 0; cycle < cycles || cycle < 2 * static_cast<int>(cases.size()); ++cycle) {
    const size_t i = cycle % cases.size();
    const size_t lap = cycle / cases.size();
    FillAndFree(lap % 2 == 0 ? 0xA5 : 0x5A, i + 2 >= cases.size() || i % 16 == 0);
    const std::string seen = Observe(cases[i]);
    ASSERT_FALSE(seen.empty()) << "case " << i;
    if (lap == 0) {
      first[i] = seen;
    } else {
      ASSERT_EQ(seen, first[i]) << "case " << i << " shows what was in memory before";
    }
  }
  // The upload that fails.
  EXPECT_THAT(errors_, testing::ElementsAre(testing::HasSubstr("cut")));
}

}  // namespace
}  // namespace tensord::server
